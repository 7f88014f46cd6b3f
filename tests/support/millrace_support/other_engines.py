"""Another engine that changes a table of either format, and knows nothing of Millrace."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.formats import check_access_to_new
from millrace_pipelines.warehouse.iceberg.addresses import is_iceberg
from millrace_pipelines.warehouse.table.access import Access
from millrace_support.iceberg_tables import other_engine


def skip_unless_compacted(address: str) -> None:
    """Skips a test of what Millrace does not do yet with tables of this format."""
    try:
        check_access_to_new(address, Access.REARRANGE)
    except TableRefusedError as error:
        pytest.skip(str(error))


def delete_elsewhere(address: str, where: str) -> None:
    """Deletes the rows for which a condition is true."""
    if is_iceberg(address):
        other_engine(address).delete(where)
    else:
        DeltaTable(address).delete(where)
