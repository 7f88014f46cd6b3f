"""What `millrace warehouse load|reload|backfill --dry-run` prints: ranges, changes of the tables, what is given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.ledger.ledger import GivenUp
    from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange, Selection
    from millrace_pipelines.warehouse.load.options import LoadOptions
    from millrace_pipelines.warehouse.load.report import LoadPreview, ReloadPreview
    from millrace_pipelines.warehouse.tables.open import TableChanges

RANGE_COLUMNS = ("partition", "from offset", "until offset", "offsets")


def show_load(options: LoadOptions, *, as_json: bool) -> None:
    """Prints what a load would do, and loads nothing."""
    from millrace_pipelines.warehouse.load.load import preview_load

    preview = preview_load(options)
    if as_json:
        ranges = {"offsets": preview.offsets, "ranges": _as_json(preview.ranges), "lost": _as_json(preview.lost)}
        print_json(asdict(preview) | ranges | {"given_up": _as_json(preview.given_up)})
    else:
        _print_load(preview)


def show_reload(options: LoadOptions, selection: Selection, *, as_json: bool) -> None:
    """Prints what a reload or a backfill would do, and changes nothing."""
    from millrace_pipelines.warehouse.load.load import preview_reload

    preview = preview_reload(options, selection)
    if as_json:
        ranges = {"replaced": _as_json(preview.replaced), "backfilled": _as_json(preview.backfilled)}
        print_json(asdict(preview) | {"offsets": preview.offsets, **ranges, "lost": _as_json(preview.lost)})
    else:
        _print_reload(preview)


def print_changes(changes: TableChanges) -> None:
    """Prints which tables would be created, and which of their columns would be added or widened."""
    for location in changes.created:
        print(f"{location} would be created")
    if changes.added:
        print(f"columns that would be added: {', '.join(changes.added)}")
    if changes.widened:
        print(f"columns that would be widened: {', '.join(changes.widened)}; {changes.rewritten_files} files rewritten")


def _as_json(ranges: Iterable[OffsetRange | LostRange | GivenUp]) -> list[dict[str, object]]:
    return [span._asdict() for span in ranges]


def _print_load(preview: LoadPreview) -> None:
    print_changes(preview.changes)
    if preview.new_ledger is not None:
        print(f"ledger {preview.new_ledger} would begin")
    for span in preview.given_up:
        until = "on" if span.until_offset is None else f"to {span.until_offset - 1}"
        print(f"partition {span.partition}: offsets from {span.from_offset} {until} would be given up: {span.reason}")
    if not preview.ranges and not preview.lost:
        print(f"{preview.table}: nothing new")
        return
    if preview.ranges:
        print_table(RANGE_COLUMNS, [(*span, span.offsets) for span in preview.ranges])
    _print_lost(preview.lost)
    lag = sum(preview.lag.values())
    left = f"; {lag:,} would be left for the next load" if lag else ""
    print(f"{preview.table}: {preview.offsets:,} offsets would be loaded{left}")


def _print_reload(preview: ReloadPreview) -> None:
    print_changes(preview.changes)
    if not preview.offsets and not preview.lost:
        print(f"{preview.table}: nothing to reload")
        return
    rows = [
        (kind, *span, span.offsets)
        for kind, spans in (("backfilled", preview.backfilled), ("replaced", preview.replaced))
        for span in spans
    ]
    if rows:
        print_table(("what", *RANGE_COLUMNS), rows)
    _print_lost(preview.lost)
    print(f"{preview.table}: {preview.offsets:,} offsets would be loaded in the place of {preview.removed_rows:,} rows")


def _print_lost(ranges: Iterable[LostRange]) -> None:
    for lost in ranges:
        print(f"partition {lost.partition}: offsets {lost.from_offset}-{lost.until_offset - 1} are lost: {lost.reason}")
