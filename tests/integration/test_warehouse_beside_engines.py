"""What other engines do to a table, and what Millrace does to it afterwards: the rows are right, or it is refused.

Spark with Delta's own jars is the judge: after the commands it reads the rows of a model, and a command that was
refused has left every file as it was. Each feature by itself is in the unit tests of `delta.protocol`; here are those
that Spark sets with its own hands, and what Spark and delta-rs do to rows, files, log and columns.
"""

import os
from pathlib import Path

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import LedgerError, TableRefusedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import checkpoint, compact, vacuum
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_pipelines.warehouse.tables.query import query
from millrace_support.engine_changes import CHANGES
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
        self.first_version, self.version = 1, 3

    def sql(self, statement):
        """Runs a statement in Spark, with `{t}` for the table and the versions of its first and of all rows."""
        for name, text in (("{t}", self.sql_name), ("{v}", f"{self.first_version}"), ("{n}", f"{self.version}")):
            statement = statement.replace(name, text)
        return self.spark.sql(statement)

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


ACCESS = {
    "query": Access.READ,
    "audit": Access.READ,
    "load": Access.APPEND,
    "compact": Access.REARRANGE,
    "erase": Access.REMOVE,
    "checkpoint": Access.REARRANGE,
    "vacuum": Access.REARRANGE,
}
NEED_THE_LEDGER = {"load", "compact", "erase"}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_rows_are_right_or_the_table_is_refused(spark, tmp_path, change):
    table = TableBesideEngines(tmp_path / "events", spark)
    change.act(table)
    table.offsets = set(change.left)
    assert played(table) == [
        command
        for command in COMMANDS
        if ACCESS[command] in change.refused or (change.is_set_back and command in NEED_THE_LEDGER)
    ]
    if Access.READ not in change.refused:
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
