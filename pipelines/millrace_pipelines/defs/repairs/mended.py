"""What a table that was mended shows at once: the commit as a materialization, and all of its checks, made again.

The checks of a table belong to its newest materialization: without new ones, its page would show none until the next
load. A check that can't be made, such as one that asks a broker which does not answer, is a warning in the log of the
run, since the commit stands.
"""

from __future__ import annotations

import dagster as dg

from millrace.errors import MillraceError
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.declaration.cluster import DeclaredTable
from millrace_pipelines.defs.loads.checks import check_evaluations
from millrace_pipelines.defs.loads.child_process import Context
from millrace_pipelines.defs.resources import MillraceResource

Logged = dg.AssetMaterialization | dg.AssetObservation


def report_mended(context: Context, millrace: MillraceResource, table: DeclaredTable, event: Logged) -> None:
    """Reports what became of a table, and the results of its checks where it was changed."""
    context.log_event(event)
    if isinstance(event, dg.AssetObservation):
        return
    try:
        for evaluation in check_evaluations(table, millrace, Check):
            context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type leaves these out, its code does not
    except MillraceError as error:
        context.log.warning("%s: not all checks were made: %s", table.keys.table.to_user_string(), error)
