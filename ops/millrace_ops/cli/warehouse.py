"""`millrace warehouse`: loads a topic into its table, and reads tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.errors import SetupError
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.installing import ensure
from millrace_ops.cli.interrupted import telling_commits
from millrace_ops.cli.options import FS, ClientConfig, ClusterAccess, DryRun, Json, StoreAccess, complete_topic, given
from millrace_ops.cli.output import iso_time, print_json, print_table
from millrace_ops.cli.query import Below, query
from millrace_ops.cli.warehouse_engine import Engine, Settings, spark_settings
from millrace_ops.cli.warehouse_forms import check_form
from millrace_ops.cli.warehouse_preview import show_load
from millrace_ops.cli.warehouse_progress import shown_listener
from millrace_pipelines.spark.choices import Isolation, Reader
from millrace_pipelines.spark.errors import FORMER_OFFSETS_STAY
from millrace_pipelines.warehouse.choices import Compression, Mode

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.load.options import LoadOptions
    from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport
    from millrace_pipelines.warehouse.tables.find import FailedLoads

app = Commands(StoreAccess, help="Load topics into Delta tables, each offset exactly once.")
LoadedTopic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="The topic's name, unless --defs names all.", autocompletion=complete_topic),
]
AcceptKeyless = Annotated[
    bool, typer.Option("--accept-keyless-records", help="Leave records without a key out of an upsert.")
]


@dataclass(frozen=True, slots=True)
class ReadChoices:
    """The options for which records of a topic are read, and by which client."""

    isolation: Annotated[Isolation, typer.Option(help="Whether to leave open and aborted transactions out.")] = (
        Isolation.READ_COMMITTED
    )
    reader: Annotated[Reader, typer.Option(help="Who fetches: Millrace's client, or Spark's Kafka connector.")] = (
        Reader.MILLRACE
    )


@dataclass(frozen=True, slots=True)
class GroupChoices:
    """The consumer group whose committed offsets show a table's lag, and whether to commit them."""

    group: Annotated[
        str | None,
        typer.Option(help="The group whose offsets show the table's lag; by default it is named after the table."),
    ] = None
    commit_group: Annotated[bool, typer.Option(help="Whether to commit offsets of that group to the broker.")] = True


@dataclass(frozen=True, slots=True)
class LoadChoices:
    """The options of `warehouse load` alone that say how much is read and accepted; names are as in `LoadOptions`."""

    max_records_per_task: Annotated[int, typer.Option(min=1, help="Offsets that one Spark task reads at most.")] = (
        1_000_000
    )
    max_records_per_run: Annotated[
        int | None, typer.Option(min=1, help="Offsets that this load takes at most; the rest is for the next.")
    ] = None
    accept_lost_offsets: Annotated[
        bool,
        typer.Option(
            "--accept-lost-offsets",
            help="Go on past offsets that retention deleted before they were loaded, or that the log has lost, or "
            "holds in a damaged batch.",
        ),
    ] = False
    accept_recreated_topic: Annotated[
        bool,
        typer.Option(
            "--accept-recreated-topic",
            help=f"Go on with a topic that was deleted and created again; {FORMER_OFFSETS_STAY}.",
        ),
    ] = False
    accept_truncated_log: Annotated[
        bool,
        typer.Option(
            "--accept-truncated-log",
            help=f"Go on where a log has less than was loaded, or other records; {FORMER_OFFSETS_STAY}.",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class TableChoices:
    """The options of `warehouse load` alone that concern its table; names are as in `LoadOptions`."""

    mode: Annotated[
        Mode | None, typer.Option(help="A row for each record, or for each key; by default the table's own mode.")
    ] = None
    deletion_vectors: Annotated[
        bool,
        typer.Option(
            "--deletion-vectors", help="In a table that is made now, upserts delete rows by deletion vectors."
        ),
    ] = False
    register: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Enter a Delta table in the catalog of another engine: glue:DB.TABLE, …"),
    ] = None
    accept_keyless_records: AcceptKeyless = False
    compression: Annotated[
        Compression | None,
        typer.Option(help="How all files are compressed from now on; by default loads write lz4, compaction zstd."),
    ] = None


@dataclass(frozen=True, slots=True)
class TurnChoices:
    """The options of `warehouse load` for loads in a loop, and for who watches loads."""

    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Load again and again, until SIGTERM ends it after the running load."),
    ] = False
    interval: Annotated[float, typer.Option(min=0, help="Seconds to wait where a load has left nothing.")] = 10.0
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where a continuous load serves Prometheus.")
    ] = None
    textfile: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tell Prometheus' node_exporter in this file whether this load has failed."),
    ] = None


@app.command()
def load(
    context: typer.Context,
    topic: LoadedTopic = None,
    *,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The table: a directory, s3://bucket/path, or iceberg:NAMESPACE.NAME; the first load creates it.",
        ),
    ] = None,
    defs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Load all tables that this file declares (docs/dagster.md), in place of TOPIC and --table.",
        ),
    ] = None,
    access: ClusterAccess,
    master: Annotated[
        str | None, typer.Option(help="Spark's master, or sc://HOST:PORT; by default all cores of this machine.")
    ] = None,
    conf: Settings = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Declared schema of the values (docs/warehouse-schemas.md), for typed columns."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="FIELD=NAME", help="Another name for the column of a field; repeatable."),
    ] = None,
    reading: ReadChoices,
    choices: LoadChoices,
    lag_group: GroupChoices,
    of_table: TableChoices,
    turns: TurnChoices,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Load what the topic has and the table doesn't, up to where the topic ends now, in one commit."""
    from millrace_pipelines.warehouse.load.options import LoadOptions

    check_form(context, turns.continuous, dry_run=dry_run)
    if defs is not None:
        for_all = given(choices) | {"reader": reading.reader, "commit_group": lag_group.commit_group}
        for_all["accept_keyless_records"] = of_table.accept_keyless_records
        _load_defs(
            defs, turns, dry_run=dry_run, as_json=as_json, for_all=for_all, master=master,
            spark_settings=spark_settings(conf), **given(access),
        )  # fmt: skip
        return
    options = LoadOptions(
        topic=topic or "",
        table=table or "",
        master=master,
        spark_settings=spark_settings(conf),
        schema=schema,
        columns=column_names(column),
        **given(access, reading, choices, lag_group, of_table),
    )
    if turns.continuous:
        from millrace_ops.cli.warehouse_continuous import LoopOptions, run_continuously

        run_continuously(options, LoopOptions(interval_s=turns.interval, metrics=turns.metrics, as_json=as_json))
        return
    _run(options, turns.textfile, dry_run=dry_run, as_json=as_json)


def _load_defs(path: str, turns: TurnChoices, *, dry_run: bool, **options: Any) -> None:
    ensure("warehouse load --defs", "pipelines")
    from millrace_ops.cli.warehouse_defs import DefsOptions, preview_defs, run_defs, run_defs_continuously

    defs = DefsOptions(path=path, **options)
    if dry_run:
        preview_defs(defs)
    elif turns.continuous:
        run_defs_continuously(defs, turns.interval)
    else:
        run_defs(defs)


Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="The table: its directory, s3://bucket/path, or iceberg:NAMESPACE.NAME.")
]
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class TopicsToo:
    """Holds the options that say how brokers are asked about the topics that the tables are loaded from."""

    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,...]", help="Brokers, to ask the topics too.")
    ] = None
    client_config: ClientConfig = None


def _name_below(directory: str, location: str) -> str:
    """Returns a table's path below a folder, or its namespace and name in a catalog."""
    from millrace_pipelines.warehouse.choices import Format
    from millrace_pipelines.warehouse.formats import format_of, name_of

    return name_of(location) if format_of(location) is Format.ICEBERG else os.path.relpath(location, directory)


@app.command()
def tables(
    directory: Below,
    *,
    topics: TopicsToo,
    textfile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write this file for Prometheus' node_exporter, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List all tables below a folder, and whose loads fail; with --bootstrap also how far each lags.

    Tables of other programs and those that can't be read are listed apart, with the reason.
    """
    from millrace_pipelines.warehouse.formats import load_table
    from millrace_pipelines.warehouse.load.history import newest_load
    from millrace_pipelines.warehouse.load.metrics import TableCollector, ToldTable, write_textfile
    from millrace_pipelines.warehouse.tables.find import describe_all

    found, others = describe_all(directory, topics.bootstrap, topics.client_config)
    if textfile is not None:
        told = [ToldTable(one, newest_load(load_table(one.location, FS))) for one in found]
        write_textfile(textfile, TableCollector(told))
    if as_json:
        print_json([asdict(one) for one in found] + [asdict(one) for one in others])
        return
    rows = [
        (
            _name_below(directory, one.location),
            one.topic,
            one.rows,
            "" if one.dead_letters is None else one.dead_letters,
            one.files,
            one.bytes,
            one.version,
            *(() if topics.bootstrap is None else (UNKNOWN if one.lag is None else one.lag,)),
        )
        for one in found
    ]
    columns = ("table", "topic", "rows", "dead letters", "files", "bytes", "version")
    empty = f"there is no table of Millrace in {directory}"
    print_table(columns if topics.bootstrap is None else (*columns, "lag"), rows, empty=empty)
    _print_failing({_name_below(directory, one.location): one.failed_loads for one in found})
    if others:
        print()
        rows_of_others = [(_name_below(directory, one.location), one.state, one.reason) for one in others]
        print_table(("no table of Millrace", "state", "reason"), rows_of_others)


@app.command()
def ledger(directory: Directory, *, topics: TopicsToo, as_json: Json = False) -> None:
    """Show which offsets a table holds; with --bootstrap also how many of each partition it lacks."""
    from millrace_pipelines.warehouse.ledger.ledger import read_ledger
    from millrace_pipelines.warehouse.tables.find import lag_of

    found = read_ledger(directory)
    lag = None if topics.bootstrap is None else lag_of(found, topics.bootstrap, topics.client_config)
    if as_json:
        print_json(asdict(found) | ({} if topics.bootstrap is None else {"lag": lag}))
        return
    print(f"{found.topic}  id {found.topic_id}" + (f"  generation {found.generation}" if found.generation else ""))
    rows = [
        (
            partition,
            entry.start_offset,
            entry.next_offset,
            entry.next_offset - entry.start_offset,
            *(() if topics.bootstrap is None else ((lag or {}).get(partition, UNKNOWN),)),
        )
        for partition, entry in found.partitions.items()
    ]
    columns = ("partition", "start offset", "next offset", "offsets")
    print_table(columns if topics.bootstrap is None else (*columns, "lag"), rows)


@app.command()
def audit(
    directory: Directory,
    *,
    topics: TopicsToo,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all bytes of the files, too, and compare them with what was written.")
    ] = False,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Check that a table has every offset of its ledger once; exit status 1 with each finding on a line."""
    from millrace_pipelines.warehouse.completeness.audit import audit as findings_of
    from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files

    with engine.tasks(f"audit {directory}") as tasks:
        findings = findings_of(directory, **given(topics), tasks=tasks)
        stored = audit_stored_files(directory, tasks=tasks) if deep else None
    found = [*findings, *(() if stored is None else stored.findings)]
    if as_json:
        print_json({"table": directory, "findings": found} | ({} if stored is None else {"files": stored.files}))
    else:
        print("\n".join(found) if found else f"{directory}: complete, each offset once")
        if stored is not None:
            size = f"{stored.bytes / 2**20:,.1f} MiB"
            print(f"{stored.files} files of {size} were read, {stored.undigested} of them without a digest")
    raise typer.Exit(1 if found else 0)


app.command()(query)


def _print_failing(by_table: Mapping[str, FailedLoads | None]) -> None:
    """Prints a second table, of the tables whose newest load failed; nothing where none did."""
    rows = [
        (name, one.times or UNKNOWN, _time(one.first_ms), _time(one.newest_ms), one.reason)
        for name, one in by_table.items()
        if one is not None
    ]
    if rows:
        print()
        print_table(("table", "failed loads", "since", "newest", "error"), rows)


def _time(at_ms: int | None) -> str:
    return UNKNOWN if at_ms is None else iso_time(at_ms)


def column_names(column: Iterable[str] | None) -> dict[str, str]:
    """Returns the column names given by `--column FIELD=NAME`, by the paths of the fields, which may contain a `=`.

    Raises typer.BadParameter for a value without a name.
    """
    names = {}
    for text in column or ():
        path, equals, name = text.rpartition("=")
        if not path or not equals or not name:
            raise typer.BadParameter(f"{text!r} is not FIELD=NAME", param_hint="--column")
        names[path] = name
    return names


def _run(options: LoadOptions, textfile: str | None, *, dry_run: bool, as_json: bool) -> None:
    from millrace.tracing import tracing_of
    from millrace_pipelines.warehouse.load.load import SERVICE, load_topic

    if dry_run:
        show_load(options, as_json=as_json)
        return
    with (
        tracing_of(os.environ, SERVICE) as tracing,
        _noted(options, textfile),
        telling_commits(options.table),
        shown_listener() as listener,
    ):
        report = load_topic(options, listener=listener, tracing=tracing)
    print_json(asdict(report)) if as_json else _print_report(report)


@contextmanager
def _noted(options: LoadOptions, textfile: str | None) -> Iterator[None]:
    """Counts the load made in this context, or its failure, in the metrics file `textfile`; does nothing for None."""
    if textfile is None:
        yield
        return
    from millrace_pipelines.warehouse.load.metrics import LoadAttempts

    attempts = LoadAttempts(options.table, options.topic)
    try:
        yield
    except Exception as error:
        try:
            attempts.note(textfile, type(error).__name__)
        except SetupError as unwritten:
            print(f"--textfile: {unwritten}", file=sys.stderr)
        raise
    attempts.note(textfile, None)


def _print_report(report: LoadReport) -> None:
    if report.version is None:
        print(f"{report.table}: nothing new")
        return
    ranges = [asdict(span) for span in report.ranges]
    if ranges:
        print_table([name.replace("_", " ") for name in ranges[0]], [tuple(span.values()) for span in ranges])
    for lost in report.skipped:
        print(f"partition {lost.partition}: offsets {lost.from_offset}-{lost.until_offset - 1} are lost: {lost.reason}")
    print_group_error(report)
    if report.late:
        print(f"{report.late:,} records were late")
    if report.dead_letters:
        print(f"millrace dead-letters list {report.table} says why records did not fit")
    print(
        f"{report.table}: version {report.version}, {report.rows:,} rows, {report.dead_letters:,} dead letters, "
        f"{report.bytes / 2**20:,.1f} MiB written in {report.seconds:.1f} s"
    )
    if (upserted := report.upserted) is not None:
        print(f"keys: {upserted.inserted:,} inserted, {upserted.updated:,} updated, {upserted.deleted:,} deleted")


def print_group_error(report: LoadReport | ReloadReport) -> None:
    """Prints on stderr what could not be published beside the table; nothing where all could."""
    if report.group_error is not None:
        print(f"the offsets of group {report.group} could not be committed: {report.group_error}", file=sys.stderr)
    if report.register_error is not None:
        print(f"the table is loaded, and not entered in a catalog: {report.register_error}", file=sys.stderr)
