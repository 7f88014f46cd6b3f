"""Dry runs of loads and reloads: they look and plan as the real ones do, and stop before the first write.

Nothing changes: no table is created or evolved, no ledger begins, no lease is held, no file is written, no group's
offsets are committed, and no Spark session starts. A dry run raises what the real one raises before its first write.
Only a log whose end a power cut has torn, which a real run repairs, is an error here (`delta.repair`).
"""

from __future__ import annotations

from millrace.fs import FileSystem, OsFileSystem
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.keys.replace import count_rows
from millrace_pipelines.warehouse.ledger.selection import Selection
from millrace_pipelines.warehouse.load.load import planned_load
from millrace_pipelines.warehouse.load.look import look
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.reload import check_options, planned_reload
from millrace_pipelines.warehouse.load.report import LoadPreview, ReloadPreview


def preview_load(options: LoadOptions, *, fs: FileSystem | None = None) -> LoadPreview:
    """Returns what `load_topic` would do now; raises what it raises before its first write."""
    found = look(options, fs or OsFileSystem())
    change, plan = planned_load(options, found)
    return LoadPreview(
        topic=options.topic,
        table=options.table,
        version=found.tables.version,
        changes=found.tables.changes(),
        new_ledger=None if change is None else change.ledger.name,
        given_up=() if change is None else change.given_up,
        ranges=plan.ranges,
        lost=plan.lost,
        lag=plan.lag,
    )


def preview_reload(options: LoadOptions, selection: Selection, *, fs: FileSystem | None = None) -> ReloadPreview:
    """Returns what `reload_topic` would do now; raises what it raises before its first write."""
    check_options(options)
    found = look(options, fs or OsFileSystem(), access=Access.REMOVE)
    plan, rows = planned_reload(options, selection, found), found.tables.rows
    return ReloadPreview(
        topic=options.topic,
        table=options.table,
        version=found.tables.version,
        changes=found.tables.changes(),
        replaced=plan.replaced,
        backfilled=plan.earlier,
        lost=plan.lost,
        removed_rows=0 if rows is None or found.tables.is_upserted else count_rows(rows, plan.replaced).total(),
    )
