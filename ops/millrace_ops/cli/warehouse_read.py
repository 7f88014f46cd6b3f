"""The commands of `millrace warehouse` that read: tables, ledger, audit and query."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.options import FS, ClientConfig, Json, given
from millrace_ops.cli.output import iso_time, print_json, print_table
from millrace_ops.record_values.shown import json_value

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.tables.find import FailedLoads

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The table's directory, or s3://bucket/path.")]
Below = Annotated[str, typer.Argument(metavar="DIR", help="A folder or a bucket (s3://…) of tables, or a table.")]
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class TopicsToo:
    """The options by which the brokers are asked for the topics of tables, too."""

    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,...]", help="Brokers, to ask the topics too.")
    ] = None
    client_config: ClientConfig = None


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
    from millrace_pipelines.warehouse.delta.table import Table
    from millrace_pipelines.warehouse.load.history import newest_load
    from millrace_pipelines.warehouse.load.metrics import TableCollector, ToldTable, write_textfile
    from millrace_pipelines.warehouse.tables.find import describe_all

    found, others = describe_all(directory, topics.bootstrap, topics.client_config)
    if textfile is not None:
        told = [ToldTable(one, newest_load(Table.load(one.location, FS))) for one in found]
        write_textfile(textfile, TableCollector(told))
    if as_json:
        print_json([asdict(one) for one in found] + [asdict(one) for one in others])
        return
    rows = [
        (
            os.path.relpath(one.location, directory),
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
    print_table(columns if topics.bootstrap is None else (*columns, "lag"), rows)
    _print_failing({os.path.relpath(one.location, directory): one.failed_loads for one in found})
    if others:
        print()
        rows_of_others = [(os.path.relpath(one.location, directory), one.state, one.reason) for one in others]
        print_table(("no table of Millrace", "state", "reason"), rows_of_others)


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


def audit(
    directory: Directory,
    *,
    topics: TopicsToo,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all bytes of the files, too, and compare them with what was written.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that a table has every offset of its ledger once; exit status 1 with each finding on a line."""
    from millrace_pipelines.warehouse.completeness.audit import audit as findings_of
    from millrace_pipelines.warehouse.completeness.contents import audit_stored_files

    findings = findings_of(directory, **given(topics))
    stored = audit_stored_files(directory) if deep else None
    found = [*findings, *(() if stored is None else stored.findings)]
    if as_json:
        print_json({"table": directory, "findings": found} | ({} if stored is None else {"files": stored.files}))
    else:
        print("\n".join(found) if found else f"{directory}: complete, each offset once")
        if stored is not None:
            size = f"{stored.bytes / 2**20:,.1f} MiB"
            print(f"{stored.files} files of {size} were read, {stored.undigested} of them without a digest")
    raise typer.Exit(1 if found else 0)


def query(
    directory: Below,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A table goes by the name of its folder.")],
    as_json: Json = False,
) -> None:
    """Run SQL over a table, or all tables below a folder, by DuckDB; with --json a line for each row."""
    from millrace_pipelines.arrow import python_rows
    from millrace_pipelines.warehouse.tables.query import query as run

    with run(directory, sql) as result:
        rows = (
            {name: json_value(value) for name, value in row.items()} for batch in result for row in python_rows(batch)
        )
        if as_json:
            for row in rows:
                print_json(row)
        else:
            print_table(result.schema.names, [[_shown(value) for value in row.values()] for row in rows])


COMMANDS: tuple[Callable[..., None], ...] = (tables, ledger, audit, query)


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


def _shown(value: object) -> object:
    """Returns a value as it is printed: lists and objects as JSON, bytes as text if they are UTF-8, else base64."""
    plain = json_value(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, (dict, list)) else plain
