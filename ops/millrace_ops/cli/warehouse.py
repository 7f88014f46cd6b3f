"""`millrace warehouse`: load a topic into its table, show a table's ledger, audit a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.load import LoadReport
    from millrace_pipelines.warehouse.progress import LoadListener

app = typer.Typer(no_args_is_help=True, help="Load topics into Delta tables, each offset exactly once.")
Directory = Annotated[str, typer.Argument(metavar="DIR", help="The table's directory.")]


@app.command()
def load(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    *,
    table: Annotated[str, typer.Option(metavar="DIR", help="The table's directory, made at the first load.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    master: Annotated[str | None, typer.Option(help="Spark's master; by default all cores of this machine.")] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="Declared schema of JSON values, for typed columns.")
    ] = None,
    max_records_per_task: Annotated[int, typer.Option(min=1, help="Offsets that one Spark task reads.")] = 250_000,
    accept_lost_offsets: Annotated[
        bool, typer.Option("--accept-lost-offsets", help="Go on past offsets that retention deleted unloaded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load what the topic has and the table doesn't, up to the end offsets of now, in one commit."""
    from millrace_pipelines.warehouse.load import LoadOptions, load_topic

    options = LoadOptions(
        topic=topic,
        table=table,
        bootstrap=bootstrap,
        master=master,
        schema=schema,
        max_records_per_task=max_records_per_task,
        accept_lost_offsets=accept_lost_offsets,
    )
    with _listener() as listener:
        report = load_topic(options, listener=listener)
    print_json(asdict(report)) if as_json else _print_report(report)


@app.command()
def ledger(directory: Directory, as_json: Json = False) -> None:
    """Show which offsets a table holds."""
    from millrace_pipelines.warehouse.ledger import read_ledger

    found = read_ledger(directory)
    if as_json:
        print_json(asdict(found))
        return
    print(f"{found.topic}  id {found.topic_id}")
    rows = [
        (partition, entry.start_offset, entry.next_offset, entry.next_offset - entry.start_offset)
        for partition, entry in found.partitions.items()
    ]
    print_table(("partition", "start offset", "next offset", "offsets"), rows)


@app.command()
def audit(directory: Directory, as_json: Json = False) -> None:
    """Check that a table has every offset of its ledger once; exit status 1 with each finding on a line."""
    from millrace_pipelines.warehouse.audit import audit as findings_of

    findings = findings_of(directory)
    if as_json:
        print_json({"table": directory, "findings": findings})
    else:
        print("\n".join(findings) if findings else f"{directory}: complete, each offset once")
    raise typer.Exit(1 if findings else 0)


def _print_report(report: LoadReport) -> None:
    if report.version is None:
        print(f"{report.table}: nothing new")
        return
    rows = [
        (span.partition, span.from_offset, span.until_offset, span.rows, span.dead_letters, span.absent)
        for span in report.ranges
    ]
    print_table(("partition", "from offset", "until offset", "rows", "dead letters", "absent"), rows)
    for span in report.lost:
        print(f"partition {span.partition}: offsets {span.from_offset}-{span.until_offset - 1} are lost to retention")
    print(
        f"{report.table}: version {report.version}, {report.rows:,} rows, {report.dead_letters:,} dead letters, "
        f"{report.bytes / 2**20:,.1f} MiB written in {report.seconds:.1f} s"
    )


@contextmanager
def _listener() -> Iterator[LoadListener]:
    """A progress bar where a person watches, else a line for each change; both on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn as Bar
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from millrace_ops.cli.warehouse_progress import BarListener, LineListener

    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineListener()
        return
    columns = (TextColumn("{task.description}"), Bar(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarListener(progress)
