"""Upserts and erasures in an Iceberg table that Spark changes too; after each step every reader shows the same rows."""

import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_support.iceberg_readers import readers
from millrace_support.spark_iceberg import CATALOG, SparkIceberg
from millrace_support.upserts import Upserts

FS = OsFileSystem()
TABLE = f"{CATALOG}.shop.newest"
KEYS = [b"%02d" % number for number in range(20)]


@pytest.fixture
def spark(tmp_path):
    (tmp_path / "spark").mkdir()
    with SparkIceberg(tmp_path, tmp_path / "spark") as session:
        yield session


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_spark_and_upserts_see_one_anothers_changes(tmp_path, spark):
    table = Upserts(f"iceberg:{tmp_path}/shop.newest")
    model = {}

    def upsert(value, *keys):
        table.run(*keys, value=value)
        for key in keys:
            model[key] = value
            if value is None:
                del model[key]
        check()

    def change(statement, *deleted):
        spark.sql(statement)
        for key in deleted:
            del model[key]
        check()

    def check():
        for name, read in readers(table.address, spark, tmp_path).items():
            rows = read().to_pylist()
            assert {bytes(row["key"]): bytes(row["value"]) for row in rows} == model, name
            assert len(rows) == len(model), name
        assert audit_stored_files(table.address).findings == ()

    upsert(b"first", *KEYS)
    upsert(b"second", *KEYS[5:10], b"new")
    upsert(None, *KEYS[:2])
    modes = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
    change(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ({modes})")
    change(f"DELETE FROM {TABLE} WHERE key IN (X'3032', X'3036')", b"02", b"06")
    assert table.table.kept_rows()
    upsert(b"third", *KEYS[2:8])
    before = table.table.digests()
    change(f"CALL {CATALOG}.system.rewrite_manifests('shop.newest')")
    assert table.table.digests() == before
    assert len(before) == len(table.names())
    change(f"CALL {CATALOG}.system.rewrite_data_files(table => 'shop.newest', options => map('rewrite-all', 'true'))")
    upsert(b"fourth", b"01", b"19")
    change(f"ALTER TABLE {TABLE} RENAME COLUMN headers TO tags")
    change(f"ALTER TABLE {TABLE} RENAME COLUMN tags TO headers")
    change(f"ALTER TABLE {TABLE} ALTER COLUMN value FIRST")
    upsert(b"fifth", b"01", b"18")
    assert erase(table.address, [b"18", b"03"], FS).rows == 2
    del model[b"18"], model[b"03"]
    check()
    change(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('format-version' = '3')")
    change(f"DELETE FROM {TABLE} WHERE key = X'3034'", b"04")  # by a vector
    assert table.table.kept_rows()
    with pytest.raises(TableRefusedError, match="format version 3"):
        table.run(b"05")
