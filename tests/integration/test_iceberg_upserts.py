"""Upserts and erasures in an Iceberg table that Spark changes too; after each step every reader shows the same rows."""

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import compact
from millrace_support.iceberg_readers import readers
from millrace_support.spark_iceberg import CATALOG, SparkIceberg
from millrace_support.upserts import Upserts

FS = OsFileSystem()
TABLE = f"{CATALOG}.shop.newest"
REWRITTEN = f"CALL {CATALOG}.system.rewrite_data_files(table => 'shop.newest', options => map('rewrite-all', 'true'))"
KEYS = [b"%02d" % number for number in range(20)]


@pytest.fixture
def spark(tmp_path):
    (tmp_path / "spark").mkdir()
    with SparkIceberg(tmp_path, tmp_path / "spark") as session:
        yield session


class Compared:
    """A table that is changed, and a dict that is changed alike; after each step every reader shows what that has."""

    def __init__(self, folder, spark, *, by_vectors):
        self.table = Upserts(f"iceberg:{folder}/shop.newest", by_vectors=by_vectors)
        self.model = {}
        self._folder = folder
        self._spark = spark

    def upsert(self, value, *keys):
        self.table.run(*keys, value=value)
        self.model |= dict.fromkeys(keys, value)
        self.check(*(keys if value is None else ()))

    def change(self, statement, *deleted):
        self._spark.sql(statement)
        self.check(*deleted)

    def check(self, *deleted):
        for key in deleted:
            del self.model[key]
        for name, read in readers(self.table.address, self._spark, self._folder).items():
            rows = read().to_pylist()
            assert {bytes(row["key"]): bytes(row["value"]) for row in rows} == self.model, name
            assert len(rows) == len(self.model), name
        assert audit_stored_files(self.table.address).findings == ()
        assert len({number for number, _ in self.row_ids().values()} - {None}) in {0, len(self.model)}

    def row_ids(self, *but):
        """Returns the rows' ids, and the numbers of the commits that wrote them, by key; none before version 3."""
        described = self._spark.sql(f"DESCRIBE EXTENDED {TABLE}")
        if not any(row[0] == "_row_id" for row in described):
            return {}
        rows = self._spark.sql(f"SELECT CAST(key AS STRING), _row_id, _last_updated_sequence_number FROM {TABLE}")
        return {key.encode(): (number, updated) for key, number, updated in rows if key.encode() not in but}


@pytest.fixture(params=[False, True], ids=["files again", "by vectors"])
def compared(request, tmp_path, spark):
    return Compared(tmp_path, spark, by_vectors=request.param)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_spark_and_upserts_see_one_anothers_changes(compared):
    table, upsert, change = compared.table, compared.upsert, compared.change
    upsert(b"first", *KEYS)
    upsert(b"second", *KEYS[5:10], b"new")
    upsert(None, *KEYS[:2])
    modes = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update"))
    change(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ({modes})")
    change(f"DELETE FROM {TABLE} WHERE key IN (X'3032', X'3036')", b"02", b"06")
    assert table.table.kept_rows()
    upsert(b"third", *KEYS[2:8])
    before = table.table.digests()
    change(f"CALL {CATALOG}.system.rewrite_manifests('shop.newest')")
    assert table.table.digests() == before
    assert len(before) == len(table.names())
    change(REWRITTEN)
    upsert(b"fourth", b"01", b"19")
    change(f"ALTER TABLE {TABLE} RENAME COLUMN headers TO tags")
    change(f"ALTER TABLE {TABLE} RENAME COLUMN tags TO headers")
    change(f"ALTER TABLE {TABLE} ALTER COLUMN value FIRST")
    upsert(b"fifth", b"01", b"18")
    assert erase(table.address, [b"18", b"03"], FS).rows == 2
    compared.check(b"18", b"03")


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_a_table_becomes_one_of_version_3_and_its_rows_keep_their_ids(compared):
    table, upsert, change = compared.table, compared.upsert, compared.change
    upsert(b"first", *KEYS)
    change(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    change(f"DELETE FROM {TABLE} WHERE key = X'3034'", b"04")
    change(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')")
    change(f"DELETE FROM {TABLE} WHERE key = X'3035'", b"05")  # by a vector
    assert table.table.kept_rows()
    upsert(b"second", b"06", b"07", b"20")
    upsert(None, b"08")
    assert len(table.vectors()) == 2
    before = compared.row_ids(b"09", b"20")
    upsert(b"third", b"09")
    assert compared.row_ids(b"09", b"20") == before
    assert erase(table.address, [b"20"], FS).rows == 1
    compared.check(b"20")
    before = compared.row_ids()
    assert compact(table.address, FS, SystemClock()).files_after == 1
    compared.check()
    assert compared.row_ids() == before
    assert not table.table.kept_rows()
    change(REWRITTEN)
    assert compared.row_ids() == before
    change(f"CALL {CATALOG}.system.expire_snapshots('shop.newest', TIMESTAMP '2100-01-01 00:00:00', 1)")
    upsert(b"fourth", b"09", b"21")
    assert compared.row_ids(b"09", b"21") == {key: said for key, said in before.items() if key != b"09"}
