"""The blocks in which a file's rows are read are bounded by rows and by bytes, whatever its row groups are."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_pipelines.warehouse.table import files
from millrace_pipelines.warehouse.table.files import row_blocks

KIB = 1024
GROUP_ROWS, GROUPS, MOST_ROWS = 64, 2, 50
OFFSETS, COLUMNS = ["offset"], ["offset", "value", "headers"]


@pytest.fixture(autouse=True)
def block_bytes(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 64 * KIB)


def written(path, value_bytes):
    """Writes a file of values of so many bytes in a column and in a list of another; returns its rows."""
    count = GROUPS * GROUP_ROWS
    values = [b"%06d" % number * (value_bytes // 6) for number in range(count)]
    rows = pa.table({"offset": range(count), "value": values, "headers": [[{"key": one}] for one in values]})
    pq.write_table(rows, path, row_group_size=GROUP_ROWS, use_dictionary=False)
    return rows


@pytest.mark.parametrize(("value_bytes", "columns", "longest"), [
    (6, None, MOST_ROWS),
    (6, COLUMNS, MOST_ROWS),
    (2 * KIB, None, 16),
    (2 * KIB, COLUMNS, 16),
    (2 * KIB, ["value"], 32),
    (2 * KIB, ["headers"], 32),
    (2 * KIB, OFFSETS, MOST_ROWS),
    (40 * KIB, None, 1),
    (100 * KIB, COLUMNS, 1),
    (100 * KIB, OFFSETS, MOST_ROWS),
])  # fmt: skip
def test_blocks_have_all_rows_and_are_bounded(tmp_path, value_bytes, columns, longest):
    rows = written(tmp_path / "file.parquet", value_bytes)
    blocks = list(row_blocks(pq.ParquetFile(tmp_path / "file.parquet"), MOST_ROWS, columns))
    assert pa.Table.from_batches(blocks) == (rows if columns is None else rows.select(columns))
    assert longest * 3 // 4 < max(block.num_rows for block in blocks) <= longest


def test_a_file_without_rows_or_without_columns_asked_has_blocks_too(tmp_path):
    pq.write_table(pa.table({"value": pa.array([], pa.binary())}), tmp_path / "empty.parquet")
    assert sum(one.num_rows for one in row_blocks(pq.ParquetFile(tmp_path / "empty.parquet"), MOST_ROWS)) == 0
    written(tmp_path / "file.parquet", 6)
    found = row_blocks(pq.ParquetFile(tmp_path / "file.parquet"), MOST_ROWS, [])
    assert sum(one.num_rows for one in found) == GROUPS * GROUP_ROWS
