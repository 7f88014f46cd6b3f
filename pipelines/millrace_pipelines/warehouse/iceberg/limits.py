"""What is not done with Iceberg tables yet, and the way on."""

from __future__ import annotations

from millrace_pipelines.warehouse.table.access import Access

NOT_YET = {
    Access.REARRANGE: "an Iceberg table is not compacted or vacuumed by Millrace yet: Spark's procedures "
    "rewrite_data_files and expire_snapshots do it, beside loads, too",
}
