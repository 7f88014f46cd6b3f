"""What the outcomes of a step's jobs are to Dagster: materializations, observations, and at the end its failure.

A job that committed something is a materialization of its asset. One that found nothing new is an observation, which
updates nothing downstream, and so is a dry run, with what a run would do. After all of them the step fails if a job
failed, with the sentence of each that failed.

The step asks for its retries itself, and therefore has no retry policy: with one, Dagster would also retry a step that
a user has cancelled, and its error would read "Exceeded max_retries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

import dagster as dg

from millrace.errors import MillraceError
from millrace.fs import FileSystem
from millrace_pipelines.defs.load_process import Context, Outcome
from millrace_pipelines.defs.maintenance import label, report_table
from millrace_pipelines.defs.table_metadata import loaded_metadata
from millrace_pipelines.machine import DISK
from millrace_pipelines.runs.jobs import Failed, LoadJob, ReloadJob, Report, failure_of
from millrace_pipelines.warehouse.load.report import LoadedRange, LoadPreview, LoadReport, ReloadPreview

Shown: TypeAlias = dict[str, int | float | str | dg.MetadataValue]
MAX_RETRIES = 2
FIRST_PAUSE_S = 5

Event = dg.MaterializeResult[None] | dg.AssetObservation
PREVIEW = "a dry run: nothing was changed"


def report_metadata(report: Report) -> Shown:
    """Returns the metadata of a load or reload that only its report has, not the table's log."""
    counted: dict[str, int]
    ranges: dict[str, tuple[LoadedRange, ...]]
    if isinstance(report, LoadReport):
        counted = {"value_bytes": report.value_bytes, "lag": sum(report.lag.values())}
        ranges, lost = {"offsets": report.ranges}, report.skipped
    else:
        counted = {"removed_rows": report.removed_rows}
        ranges, lost = {"replaced": report.replaced, "backfilled": report.backfilled}, report.lost
    shown: Shown = {
        **counted,
        "seconds": round(report.seconds, 3),
        **{name: _table([asdict(one) for one in some]) for name, some in ranges.items()},
        "lost_offsets": _table([one._asdict() for one in lost]),
        "table": dg.MetadataValue.path(report.table),
    }
    return {label(name): value for name, value in shown.items()}


def nothing_new_metadata(report: Report) -> Shown:
    """Returns the metadata of a load or reload that committed nothing."""
    lag: Shown = {"lag": sum(report.lag.values())} if isinstance(report, LoadReport) else {}
    return {"loaded": "nothing new", **lag, "table": dg.MetadataValue.path(report.table)}


def _table(rows: Sequence[Mapping[str, object]]) -> dg.TableMetadataValue | str:
    return report_table(rows) if rows else "none"


def asset_events(context: Context, outcomes: Iterable[tuple[str, Outcome]]) -> Iterator[Event]:
    """Yields one Dagster event for each job that did not fail, as soon as its outcome is known.

    Args:
        context: The step that runs.
        outcomes: By key, what became of each job; a key is that of its asset, as `AssetKey.to_user_string` writes it.

    Raises:
        Failure: A job failed, and either no retry helps, or none is left.
        RetryRequested: All failures of the step may pass.
    """
    failed: dict[str, Failed] = {}
    jobs = 0
    for jobs, (key, outcome) in enumerate(outcomes, 1):  # noqa: B007  their number is needed after the last
        event = _event(context, dg.AssetKey.from_user_string(key), outcome)
        if isinstance(event, Failed):
            context.log.error("%s: %s", key, event.sentence)
            failed[key] = event
        else:
            yield event
    if failed:
        raise_failures(failed, jobs, context.retry_number)


def _event(context: Context, asset_key: dg.AssetKey, outcome: Outcome) -> Event | Failed:
    """Returns the event of a job's outcome, or a failure, as where a table can't be read after its commit."""
    if isinstance(outcome, Failed):
        return outcome
    if outcome.version is None:
        return dg.AssetObservation(asset_key, metadata=nothing_new_metadata(outcome))
    try:
        table = loaded_metadata(outcome.table, outcome.version, DISK, topic=topic_of(context, asset_key))
    except MillraceError as error:
        return failure_of(error)
    return dg.MaterializeResult(asset_key=asset_key, metadata={**table, **report_metadata(outcome)})


def topic_of(context: Context, asset_key: dg.AssetKey) -> dg.AssetKey | None:
    """Returns the asset that a table is loaded from, the only one upstream of it; None where there is not just one."""
    upstream = context.assets_def.asset_deps.get(asset_key, frozenset()) if context.has_assets_def else frozenset()
    return next(iter(upstream)) if len(upstream) == 1 else None


def raise_failures(failed: Mapping[str, Failed], jobs: int, retry_number: int) -> None:
    """Fails the step, or asks for another attempt where all failures may pass and fewer than MAX_RETRIES were made.

    Args:
        failed: By key, why jobs failed.
        jobs: The number of all jobs of the step.
        retry_number: The number of retries that were made.
    """
    failure = step_failure(failed, jobs)
    if failure.allow_retries and retry_number < MAX_RETRIES:
        raise dg.RetryRequested(MAX_RETRIES, FIRST_PAUSE_S * 2**retry_number) from failure
    raise failure


def step_failure(failed: Mapping[str, Failed], jobs: int) -> dg.Failure:
    """Returns the failure of a step: the sentence of its only job, or a line for each that failed, by key."""
    lines = [one.sentence if jobs == 1 else f"{key}: {one.sentence}" for key, one in failed.items()]
    if len(failed) > 1:
        lines.insert(0, f"{len(failed)} of {jobs} failed")
    return dg.Failure(
        "\n".join(lines),
        metadata={label: value for key, one in failed.items() for label, value in _shown(key, one).items()},
        allow_retries=all(one.may_pass for one in failed.values()),
    )


def _shown(key: str, failed: Failed) -> dict[str, str]:
    goes_on = {} if failed.option is None else {f"{key}: option that goes on": f"{failed.option}: true"}
    return {f"{key}: error": failed.error} | goes_on


def load_previews(
    context: Context, jobs: Sequence[LoadJob | ReloadJob], fs: FileSystem
) -> Iterator[dg.AssetObservation]:
    """Yields what each job would do now; at the end raises dg.Failure with the sentences of those that would fail."""
    failed: dict[str, Failed] = {}
    for job in jobs:
        try:
            metadata = _preview(job, fs)
        except MillraceError as error:
            failed[job.key] = failure_of(error)
            context.log.error("%s: %s", job.key, failed[job.key].sentence)  # noqa: TRY400 -- the sentence says all
        else:
            yield dg.AssetObservation(dg.AssetKey.from_user_string(job.key), description=PREVIEW, metadata=metadata)
    if failed:
        raise step_failure(failed, len(jobs))


def _preview(job: LoadJob | ReloadJob, fs: FileSystem) -> dict[str, dg.RawMetadataValue]:
    from millrace_pipelines.warehouse import preview_load, preview_reload  # noqa: PLC0415  with PySpark

    if isinstance(job, LoadJob):
        return _of_load(preview_load(job.options, fs=fs))
    return _of_reload(preview_reload(job.options, job.selection, fs=fs))


def _of_load(preview: LoadPreview) -> dict[str, dg.RawMetadataValue]:
    return {
        "offsets to load": preview.offsets,
        "ranges to load": report_table([span._asdict() for span in preview.ranges]),
        "lost offsets": report_table([span._asdict() for span in preview.lost]),
        "lag afterwards": sum(preview.lag.values()),
        "new ledger": preview.new_ledger or "none",
    }


def _of_reload(preview: ReloadPreview) -> dict[str, dg.RawMetadataValue]:
    return {
        "offsets to reload": preview.offsets,
        "ranges to replace": report_table([span._asdict() for span in preview.replaced]),
        "ranges to backfill": report_table([span._asdict() for span in preview.backfilled]),
        "lost offsets": report_table([span._asdict() for span in preview.lost]),
        "rows to remove": preview.removed_rows,
    }
