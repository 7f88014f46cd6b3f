"""Another engine that changes a table of either format, and knows nothing of Millrace."""

from __future__ import annotations

from deltalake import DeltaTable

from millrace_pipelines.warehouse.iceberg.addresses import is_iceberg
from millrace_support.iceberg_tables import other_engine


def delete_elsewhere(address: str, where: str) -> None:
    """Deletes the rows for which a condition is true."""
    if is_iceberg(address):
        other_engine(address).delete(where)
    else:
        DeltaTable(address).delete(where)
