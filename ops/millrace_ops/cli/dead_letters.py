"""`millrace dead-letters`: shows the records that did not fit a table's columns, and replays them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT, MAX_LONG
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.interrupted import telling_commits
from millrace_ops.cli.options import DryRun, Json, StoreAccess
from millrace_ops.cli.output import print_json, print_table
from millrace_ops.cli.warehouse_preview import print_changes
from millrace_ops.record_values.shown import hex_lines, json_bytes, shown_text

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.dead_letters import Selection
    from millrace_pipelines.warehouse.load.replay import ReplayReport
    from millrace_pipelines.warehouse.payload.outcome import DeadLetter

app = Commands(StoreAccess, help="List, show and replay records that did not fit a table's columns.")
Directory = Annotated[
    str,
    typer.Argument(metavar="DIR", help="The rows' table: its directory, s3://bucket/path, or iceberg:NAMESPACE.NAME."),
]
SHOWN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LetterChoices:
    """The options that choose among a table's dead letters."""

    reason: Annotated[str | None, typer.Option("--reason", help="Only letters of this reason, as `list` names it.")] = (
        None
    )
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=MAX_INT, help="Only letters of this partition.")
    ] = None
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, max=MAX_LONG, help="Only letters from here on.")
    ] = None
    until_offset: Annotated[
        int | None, typer.Option("--until-offset", min=0, max=MAX_LONG, help="Only letters below this.")
    ] = None

    def selection(self) -> Selection:
        """Returns the choices as a `Selection`, as the functions of `warehouse.dead_letters` take them."""
        from millrace_pipelines.warehouse.dead_letters import Selection

        return Selection(self.reason, self.partition, self.from_offset, self.until_offset)


@app.command("list")
def list_letters(
    directory: Directory,
    *,
    chosen: LetterChoices,
    each: Annotated[int, typer.Option(metavar="N", min=0, help="Also name the first N letters.")] = 0,
    as_json: Json = False,
) -> None:
    """Count a table's dead letters by reason; with --each, name some."""
    from millrace_pipelines.warehouse.dead_letters import count_reasons, each_dead_letter

    selection = chosen.selection()
    counts = count_reasons(directory, selection)
    letters = list(islice(each_dead_letter(directory, selection), each))
    if as_json:
        reasons = [asdict(count) | {"waiting": count.waiting} for count in counts]
        print_json({"table": directory, "reasons": reasons, "letters": [_as_json(letter) for letter in letters]})
        return
    if not counts:
        print(f"{directory}: no dead letters")
        return
    columns = ("reason", "letters", "replayed", "waiting", "first at", "for example")
    print_table(columns, [(c.reason, c.letters, c.replayed, c.waiting, f"{c.partition}:{c.offset}", c.example)
                          for c in counts])  # fmt: skip
    if letters:
        print_table(("partition", "offset", "reason", "replay", "error"), [_line(letter) for letter in letters])
    else:
        print(f"millrace dead-letters show {directory} PARTITION OFFSET shows one; replay tries them again")


@app.command()
def show(
    directory: Directory,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, max=MAX_INT, help="The letter's partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, max=MAX_LONG - 1, help="The letter's offset.")],
    as_json: Json = False,
) -> None:
    """Show one dead letter with its bytes; exit status 1 where there is none."""
    from millrace_pipelines.warehouse.dead_letters import each_dead_letter

    found = list(each_dead_letter(directory, LetterChoices(None, partition, offset, offset + 1).selection()))
    if as_json:
        print_json([_as_json(letter) for letter in found])
    elif not found:
        print(f"{directory}: partition {partition}, offset {offset} is no dead letter")
    for letter in [] if as_json else found:
        _print_letter(letter)
    raise typer.Exit(0 if found else 1)


@app.command()
def replay(
    directory: Directory,
    *,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="A corrected schema, which becomes the table's.")
    ] = None,
    chosen: LetterChoices,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Append the letters that decode now to the rows, each exactly once; exit status 1 where some stay letters."""
    from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay

    selection = chosen.selection()
    options = ReplayOptions(table=directory, schema=schema, selection=selection, dry_run=dry_run)
    with telling_commits(directory):
        report = replay(options)
    print_json(asdict(report)) if as_json else _print_report(report)
    raise typer.Exit(1 if report.staying else 0)


def _line(letter: DeadLetter) -> tuple[object, ...]:
    replay = "" if letter["replay"] is None else letter["replay"]
    return letter["partition"], letter["offset"], letter["reason"], replay, letter["error"]


def _as_json(letter: DeadLetter) -> dict[str, object]:
    headers = [[header["key"], json_bytes(header["value"])] for header in letter["headers"] or []]
    timestamp = letter["timestamp"]
    if isinstance(timestamp, datetime):  # a text in older letters
        timestamp = timestamp.isoformat()
    shown = {"timestamp": timestamp, "headers": headers, "key": json_bytes(letter["key"])}
    keys = None if letter["header_keys"] is None else [json_bytes(key) for key in letter["header_keys"]]
    return {**letter, **shown, "value": json_bytes(letter["value"]), "header_keys": keys}


def _print_letter(letter: DeadLetter) -> None:
    fields: Mapping[str, object] = letter
    for name in ("topic", "partition", "offset", "timestamp", "reason", "error", "schema_id", "load_id", "replay"):
        print(f"{name.replace('_', ' '):10} {'' if fields[name] is None else fields[name]}")
    if letter["timestamp_ms"] is not None:
        print(f"{'time in ms':10} {letter['timestamp_ms']}")
    _print_bytes("key", letter["key"])
    _print_bytes("value", letter["value"])
    for place, header in enumerate(letter["headers"] or []):
        if letter["header_keys"] is not None:
            _print_bytes("header key", letter["header_keys"][place])
        _print_bytes(f"header {header['key']}", header["value"])


def _print_bytes(name: str, value: bytes | None) -> None:
    if value is None:
        print(f"{name:10} null")
        return
    print(f"{name:10} {len(value)} bytes")
    text = shown_text(value[:SHOWN_BYTES])
    for line in hex_lines(value[:SHOWN_BYTES]) if text is None else text.splitlines():
        print(f"  {line}")
    if len(value) > SHOWN_BYTES:
        print(f"  … {len(value) - SHOWN_BYTES} bytes more")


def _print_report(report: ReplayReport) -> None:
    if report.finished is not None:
        print(f"{report.table}: replay {report.finished} had stopped before its marks; they are made now")
    if report.dry_run:
        print_changes(report.changes)
    done = "would become rows" if report.dry_run else "are rows now"
    print(f"{report.table}: {report.replayed:,} of {report.selected:,} dead letters {done}")
    if report.staying:
        print_table(("stays, for", "letters"), sorted(report.staying.items()))
