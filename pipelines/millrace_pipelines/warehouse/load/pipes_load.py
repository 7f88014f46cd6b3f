"""One load as an external process of Dagster: `python -m millrace_pipelines.warehouse.load.pipes_load` under Pipes.

The extras are topic, table, bootstrap, and optionally schema (a path or null) and master (Spark's, or null). The
process reports one materialization, whose metadata says what was done; an error ends it with its message and status 1.
"""

from __future__ import annotations

from dagster_pipes import PipesContext, PipesExtras, PipesMetadataRawValue, PipesMetadataValue, open_dagster_pipes

from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.progress import Step
from millrace_pipelines.warehouse.load.report import LoadReport


class PipesListener:
    """Follows a load in Dagster's log: each step, and each change of the tasks done."""

    def __init__(self, context: PipesContext) -> None:
        self._context = context
        self._done = 0

    def reached(self, step: Step) -> None:
        """Writes the step into the log."""
        self._context.log.info("load: %s", step)

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Writes the number of finished tasks into the log when it changes."""
        if done != self._done:
            self._done = done
            self._context.log.info("load: %d of %d tasks done, %d records read", done, total, records)


def materialization_metadata(report: LoadReport) -> dict[str, PipesMetadataRawValue | PipesMetadataValue]:
    """Returns what Dagster shows of a load."""
    offsets = [
        {"partition": span.partition, "from_offset": span.from_offset, "until_offset": span.until_offset}
        | {"rows": span.rows, "dead_letters": span.dead_letters, "control": span.control, "aborted": span.aborted}
        | {"compacted": span.compacted}
        for span in report.ranges
    ]
    return {
        "rows": report.rows,
        "dead_letters": report.dead_letters,
        "bytes": report.bytes,
        "value_bytes": report.value_bytes,
        "seconds": round(report.seconds, 3),
        "offsets": {"raw_value": offsets, "type": "json"},
        "lost_offsets": {"raw_value": [span._asdict() for span in report.lost], "type": "json"},
        "lag": sum(report.lag.values()),
        "table": {"raw_value": report.table, "type": "path"},
        "table_version": "nothing new" if report.version is None else report.version,
    }


def load_options(extras: PipesExtras) -> LoadOptions:
    """Returns the options that a Pipes context's extras give."""
    return LoadOptions(
        topic=extras["topic"],
        table=extras["table"],
        bootstrap=extras["bootstrap"],
        schema=extras.get("schema"),
        master=extras.get("master"),
    )


def main() -> None:
    """Loads, and reports the materialization."""
    with open_dagster_pipes() as context:
        report = load_topic(load_options(context.extras), listener=PipesListener(context))
        context.report_asset_materialization(metadata=materialization_metadata(report))


if __name__ == "__main__":
    main()
