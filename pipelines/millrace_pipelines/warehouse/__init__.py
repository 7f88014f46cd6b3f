"""Topics as Delta tables: rows and offsets in one commit, each offset exactly once.

What programs use has its name here, and is imported when it is first used (`import load_topic`).

    completeness   the audit: what loads claim against what files hold
    load           loads, reloads and replays: plan, Spark tasks, verification, commit
    maintenance    compaction, checkpoints, vacuum
    keys           one row for each key, and removal by key or by offset
    dead_letters   records that don't fit the declared schema
    tables         tables found, opened, brought to a changed schema, queried
    ledger         which offsets a table holds, and which come next
    payload        values to typed columns
    delta          the Delta Lake table: log, files, leases, rewrites
    choices        a table's mode, and the codec of its files
    errors         what stops a load
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millrace.extras import require

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.ledger.plan import Selection as Selection
    from millrace_pipelines.warehouse.load.load import load_topic as load_topic
    from millrace_pipelines.warehouse.load.load import preview_load as preview_load
    from millrace_pipelines.warehouse.load.load import preview_reload as preview_reload
    from millrace_pipelines.warehouse.load.load import reload_topic as reload_topic
    from millrace_pipelines.warehouse.load.options import LoadOptions as LoadOptions
    from millrace_pipelines.warehouse.tables.query import query as query
    from millrace_pipelines.warehouse.tables.spark_table import spark_table as spark_table

_FACE = {
    "LoadOptions": "load.options",
    "Selection": "ledger.plan",
    "load_topic": "load.load",
    "preview_load": "load.load",
    "preview_reload": "load.load",
    "query": "tables.query",
    "reload_topic": "load.load",
    "spark_table": "tables.spark_table",
}


def __getattr__(name: str) -> Any:
    """Returns what programs use, imported now; raises SetupError where it needs an extra that is not installed."""
    if name in _FACE:
        try:
            return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
        except ModuleNotFoundError:
            require(name, "tables", "spark")
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns what programs use."""
    return sorted(_FACE)
