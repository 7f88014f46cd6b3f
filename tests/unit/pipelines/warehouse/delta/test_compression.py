"""How data files are compressed: by default, by a table's choice, and once they are put together."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.choices import (
    COMPRESSION_PROPERTY,
    Compression,
    loaded_compression,
    settled_compression,
)
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.table.files import DataFileWriter
from millrace_support.small_tables import open_tables

FS = OsFileSystem()
IN_FOOTERS = {
    Compression.LZ4: "LZ4",
    Compression.SNAPPY: "SNAPPY",
    Compression.ZSTD: "ZSTD",
    Compression.GZIP: "GZIP",
    Compression.NONE: "UNCOMPRESSED",
}


def opened(directory, compression=None):
    return open_tables(str(directory), "events", "id", None, FS, compression=compression).rows


def add(table, offset):
    """Commit one row in a file of its own, as a load of this table would."""
    row = {"topic": "events", "partition": 0, "offset": offset, "value": b"v" * 100, "headers": []}
    compression = loaded_compression(table.configuration)
    with DataFileWriter(table.location, f"load{offset}", 0, ENVELOPE_SCHEMA, FS, compression=compression) as writer:
        writer.write(pa.Table.from_pylist([row], ENVELOPE_SCHEMA))
        file = writer.finish()
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, offset + 1)})
    table.commit([file], expected=expected, transactions=transactions, lineage={})
    return file.name


def codecs(table):
    """Of each file, in the order of offsets."""
    found = {}
    for path in table.files():
        metadata = pq.read_metadata(path).row_group(0)
        [codec] = {metadata.column(index).compression for index in range(metadata.num_columns)}
        found[pq.read_table(path).column("offset")[0].as_py()] = codec
    return [codec for _, codec in sorted(found.items())]


@pytest.mark.parametrize("compression", Compression)
def test_a_file_has_the_codec_that_its_table_chose(tmp_path, compression):
    table = opened(tmp_path / "t", compression)
    add(table, 0)
    assert codecs(table) == [IN_FOOTERS[compression]]
    assert pq.read_table(table.files()[0]).column("value").to_pylist() == [b"v" * 100]


def test_without_a_choice_loads_are_fast_and_compaction_is_small(tmp_path):
    table = opened(tmp_path / "t")
    assert COMPRESSION_PROPERTY not in table.configuration
    for offset in (0, 1, 2):
        add(table, offset)
    assert codecs(table) == ["LZ4"] * 3
    compact(table.location, FS, SystemClock())
    table = opened(tmp_path / "t")
    assert codecs(table) == ["ZSTD"]
    add(table, 3)
    assert codecs(table) == ["ZSTD", "LZ4"]


def test_a_choice_holds_for_what_comes_after_it_and_for_compaction(tmp_path):
    add(opened(tmp_path / "t"), 0)
    add(opened(tmp_path / "t", Compression.SNAPPY), 1)
    add(opened(tmp_path / "t"), 2)
    version = opened(tmp_path / "t", Compression.SNAPPY).version
    assert version == 4  # made, a row, the choice, two rows: the same choice again is no commit
    table = Table.load(str(tmp_path / "t"), FS)
    assert codecs(table) == ["LZ4", "SNAPPY", "SNAPPY"]
    compact(table.location, FS, SystemClock())
    assert codecs(Table.load(table.location, FS)) == ["SNAPPY"]


def test_a_choice_of_other_tools_that_is_none_is_named():
    for which in (loaded_compression, settled_compression):
        with pytest.raises(WarehouseError, match=r"millrace\.compression is 'brotli', not one of lz4, snappy"):
            which({COMPRESSION_PROPERTY: "brotli"})
