"""The options of a table's loads, as it is declared."""

from __future__ import annotations

from millrace_pipelines.declaration.cluster import DeclaredTable
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.warehouse.load.options import LoadOptions


def table_options(table: DeclaredTable, millrace: MillraceResource, run_id: str) -> LoadOptions:
    """Returns the options of a load, or a reload, by a run."""
    declared = table.declared
    return LoadOptions(
        topic=table.topic,
        bootstrap=millrace.bootstrap,
        client_config=millrace.client_config or None,
        table=millrace.table_dir(table.location or table.topic),
        schema=table.schema or millrace.schema_file(table.topic),
        columns=declared.columns,
        isolation=declared.isolation,
        mode=declared.mode,
        compression=declared.compression,
        group=declared.group,
        max_records_per_run=declared.max_records_per_run,
        run_id=run_id,
    )
