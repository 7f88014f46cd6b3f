"""The ids of rows, as Iceberg's format version 3 has them: a row keeps its id where a rewrite moves it.

    _row_id                         the data file's first row id and the row's number, unless the file says another
    _last_updated_sequence_number   the number of the commit that added the file, unless the file says another

A file into which rows are moved says both for each row, in columns that no table shows. A file of new rows has no such
columns.

Source: the Iceberg table specification, "Row Lineage", "Reserved Field IDs".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_pipelines.warehouse.table.files import FieldIds

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
ROW_ID_COLUMNS = pa.schema([(ROW_ID, pa.int64()), (LAST_UPDATED, pa.int64())])
ROW_ID_FIELDS: FieldIds = {(ROW_ID,): 2_147_483_540, (LAST_UPDATED,): 2_147_483_539}


class RowOrigin(NamedTuple):
    """What the ids of a data file's rows follow from.

    Attributes:
        first_row_id: The id of its first row.
        sequence_number: The sequence number of the commit that its rows are of.
    """

    first_row_id: int
    sequence_number: int


def with_row_ids(rows: pa.Table, origin: RowOrigin | None, first: int) -> pa.Table:
    """Returns rows of a file, whose numbers begin with `first`, with the ids that they have.

    Args:
        rows: The rows, with the columns of ids, null where the file does not say them.
        origin: That of the file; None for one whose rows have no ids yet.
        first: The number of the first of the rows.
    """
    if origin is None:
        return rows
    numbers = np.arange(first, first + rows.num_rows) + origin.first_row_id
    for name, inherited in ((ROW_ID, numbers), (LAST_UPDATED, np.full(rows.num_rows, origin.sequence_number))):
        column = pc.coalesce(rows.column(name), pa.chunked_array([inherited]))
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows
