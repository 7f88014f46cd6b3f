"""What other engines do to a table, and what Millrace does to it afterwards: the rows are right, or it is refused.

Spark with Delta's own jars is the judge: after the commands it reads the rows of a model, and a command that was
refused has left every file as it was. Each feature by itself is in the unit tests of `delta.protocol`; here are those
that Spark sets with its own hands, and what Spark and delta-rs do to rows, files, log and columns.
"""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import LedgerError, TableRefusedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_pipelines.warehouse.tables.query import query
from millrace_pipelines.warehouse.upkeep.compact import compact
from millrace_pipelines.warehouse.upkeep.policy import checkpoint
from millrace_pipelines.warehouse.upkeep.vacuum import vacuum
from millrace_support.loads import Loads
from millrace_support.spark_delta import SparkDelta, SparkDeltaError

DELTA_JARS = Path(__file__).parents[2] / ".peers" / "spark-delta" / "libs"
FS = OsFileSystem()

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not any(DELTA_JARS.glob("*.jar")), reason="`make peers` brings Delta's jars for Spark"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with SparkDelta(DELTA_JARS, tmp_path_factory.mktemp("spark")) as spark:
        yield spark


def load(loads, low, high):
    offsets = list(range(low, high))
    loads.load((low, high), offsets, values={"key": [b"key-%d" % offset for offset in offsets]})


class TableBesideEngines:
    """A table, and the offsets that it should have."""

    def __init__(self, directory, spark):
        self.loads = Loads(str(directory))
        self.location = self.loads.directory
        self.spark = spark
        self.sql_name = f"delta.`{self.location}`"
        self.end = 0
        self.offsets = set()
        for rows in (4, 3, 3):
            self.load(rows)

    def sql(self, statement):
        """Runs a statement in Spark, with `{t}` for the table."""
        return self.spark.sql(statement.replace("{t}", self.sql_name))

    def load(self, rows=2):
        look_at_tables(self.location, "events", "id-1", None, FS)
        load(self.loads, self.end, self.end + rows)
        self.offsets |= set(range(self.end, self.end + rows))
        self.end += rows

    def erase(self):
        offset = min(self.offsets)
        erase(self.location, [b"key-%d" % offset], FS)
        self.offsets -= {offset}

    def compact(self):
        compact(self.location, FS, SystemClock())

    def vacuum(self):
        vacuum(self.location, FS, retention_hours=0)

    def checkpoint(self):
        checkpoint(self.location, FS)

    def query(self):
        with query(self.location, f'SELECT "offset" FROM {os.path.basename(self.location)}') as rows:
            assert sorted(rows.read_all().column("offset").to_pylist()) == sorted(self.offsets)

    def spark_table(self):
        try:
            rows = self.spark.table(self.location, ["offset"])
        except SparkDeltaError as error:
            if not str(error).startswith(TableRefusedError.__name__):
                raise
            raise TableRefusedError(str(error)) from error
        assert sorted(offset for [offset] in rows) == sorted(self.offsets)

    def audit(self):
        audit(self.location)

    def files(self):
        """All files but those of Spark's checksums, with what is in them."""
        return {
            path: path.read_bytes()
            for path in Path(self.location).rglob("*")
            if path.is_file() and "_running" not in path.parts
        }

    def check(self):
        """Spark reads what the table should have."""
        assert sorted(row[0] for row in self.sql("SELECT offset FROM {t}")) == sorted(self.offsets)


COMMANDS = ("query", "audit", "load", "compact", "erase", "checkpoint", "vacuum", "load", "query")


def played(table):
    """Runs every command; returns the names of those that were refused."""
    refused = []
    for command in COMMANDS:
        before, expected = table.files(), set(table.offsets)
        try:
            getattr(table, command)()
        except (TableRefusedError, LedgerError):
            assert table.files() == before
            table.offsets = expected
            refused.append(command)
    table.check()
    return refused


WRITES = [command for command in COMMANDS if command not in ("query", "audit")]
REMOVALS = ["erase"]
ALL = list(COMMANDS)
LISTED = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
          "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType")  # fmt: skip


def sql(*statements):
    """A change by Spark's SQL, with `{t}` for the table."""

    def change(table):
        for statement in statements:
            table.sql(statement)

    return change


def properties(*texts):
    """A change of properties by Spark, a commit for each text."""
    return sql(*(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({text})" for text in texts))


def rows_are(offsets, change):
    """A change that also leaves these offsets."""

    def changed(table):
        change(table)
        table.offsets = set(offsets)

    return changed


def by_delta_rs(act, offsets=None):
    """A change by delta-rs."""
    return rows_are(range(10) if offsets is None else offsets, lambda table: act(DeltaTable(table.location)))


def compacted_and_vacuumed(delta):
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def cleaned(delta):
    """Leaves of the log what a checkpoint and the commits after it have."""
    delta.create_checkpoint()
    delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"}, raise_if_not_exists=False)
    delta.cleanup_metadata()


WITHOUT_1 = [offset for offset in range(10) if offset != 1]
VECTORS = "'delta.enableDeletionVectors' = 'true'"
EACH_COMMIT = "'delta.checkpointInterval' = '1'"
FORGOTTEN = "'delta.setTransactionRetentionDuration' = 'interval 0 hours'"
CHANGES = {
    "features that are only listed": (
        properties(", ".join(f"'delta.feature.{name}' = 'supported'" for name in LISTED)), []),
    "append only": (properties("'delta.appendOnly' = 'true'"), REMOVALS),
    "change data feed": (properties("'delta.enableChangeDataFeed' = 'true'"), REMOVALS),
    "change data": (
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            "UPDATE {t} SET value = key WHERE offset = 2"), REMOVALS),
    "column mapping": (properties("'delta.columnMapping.mode' = 'name'"), ALL),
    "vectors are on": (properties(VECTORS), []),
    "vectors": (
        rows_are(WITHOUT_1, sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({VECTORS})",
                                "DELETE FROM {t} WHERE offset = 1")), []),
    "vectors, purged": (
        rows_are(WITHOUT_1, sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({VECTORS})",
                                "DELETE FROM {t} WHERE offset = 1", "REORG TABLE {t} APPLY (PURGE)")), []),
    "widened column": (
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "ALTER TABLE {t} ALTER COLUMN partition TYPE BIGINT"), ALL),
    "row tracking": (properties("'delta.enableRowTracking' = 'true'"), WRITES),
    "checkpoints of the second kind": (
        properties(f"'delta.checkpointPolicy' = 'v2', {EACH_COMMIT}", "'a' = '1'", "'a' = '2'"), []),
    "times in commits": (properties("'delta.enableInCommitTimestamps' = 'true'"), WRITES),
    "a constraint": (sql("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (offset >= 0)"), ["load", "erase", "load"]),
    "clusters": (sql("ALTER TABLE {t} CLUSTER BY (offset)"), WRITES),
    "a manifest": (properties("'delta.compatibility.symlinkFormatManifest.enabled' = 'true'"), WRITES),
    "transactions are forgotten": (properties(f"{FORGOTTEN}, {EACH_COMMIT}", "'a' = '1'"), WRITES),
    "transactions were forgotten": (
        sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FORGOTTEN}, {EACH_COMMIT})",
            "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '1')",
            "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"), []),
    "no statistics": (
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')", "OPTIMIZE {t}"), []),
    "checkpoints without statistics": (
        properties(f"'delta.checkpoint.writeStatsAsJson' = 'false', {EACH_COMMIT}", "'a' = '1'"), []),
    "restored": (rows_are(range(4), sql("RESTORE TABLE {t} TO VERSION AS OF 1")),
                 [command for command in WRITES if command not in ("checkpoint", "vacuum")]),
    "restored, and that taken back": (
        sql("RESTORE TABLE {t} TO VERSION AS OF 1", "RESTORE TABLE {t} TO VERSION AS OF 3"), []),
    "optimized and vacuumed": (sql("OPTIMIZE {t}", "VACUUM {t} RETAIN 0 HOURS"), []),
    "rows deleted": (rows_are(WITHOUT_1, sql("DELETE FROM {t} WHERE offset = 1")), []),
    "rows updated": (sql("UPDATE {t} SET value = key WHERE offset = 2"), []),
    "columns added": (
        sql("ALTER TABLE {t} ADD COLUMNS (note STRING, pair STRUCT<a: INT>)",
            "UPDATE {t} SET pair = named_struct('a', 1) WHERE offset = 2"), []),
    "columns in another order": (sql("ALTER TABLE {t} ALTER COLUMN offset FIRST"), []),
    "delta-rs compacts and vacuums": (by_delta_rs(compacted_and_vacuumed), []),
    "delta-rs deletes": (by_delta_rs(lambda delta: delta.delete("offset = 1"), WITHOUT_1), []),
    "delta-rs updates": (by_delta_rs(lambda delta: delta.update(updates={"value": "key"}, predicate="offset = 2")), []),
    "delta-rs adds a constraint": (
        by_delta_rs(lambda delta: delta.alter.add_constraint({"positive": "offset >= 0"})), ["load", "erase", "load"]),
    "delta-rs restores": (by_delta_rs(lambda delta: delta.restore(1), range(4)),
                          [command for command in WRITES if command not in ("checkpoint", "vacuum")]),
    "delta-rs cleans the log": (by_delta_rs(cleaned), []),
}  # fmt: skip


@pytest.mark.parametrize(("change", "refused"), CHANGES.values(), ids=list(CHANGES))
def test_rows_are_right_or_the_table_is_refused(spark, tmp_path, change, refused):
    table = TableBesideEngines(tmp_path / "events", spark)
    change(table)
    assert played(table) == refused
    if "query" not in refused:
        table.spark_table()
        return
    with pytest.raises(TableRefusedError):
        table.spark_table()


def test_a_clone_is_refused(spark, tmp_path):
    table = TableBesideEngines(tmp_path / "events", spark)
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/clone` SHALLOW CLONE {table.sql_name}")
    table.location = str(tmp_path / "clone")
    with pytest.raises(TableRefusedError, match="names files outside of its folder"):
        look_at_tables(table.location, "events", "id-1", None, FS)
