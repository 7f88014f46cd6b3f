"""What is not done with Iceberg tables yet, and the way on."""

from __future__ import annotations

from millrace_pipelines.warehouse.table.access import Access

NOT_YET = {
    Access.REMOVE: "rows of an Iceberg table are not replaced or removed by Millrace yet: upserts, reloads, replays, "
    "erasures and columns that Iceberg can't widen need a Delta table",
}
