"""The rows of skipped ranges, beside maintenance of their table."""

import pyarrow.dataset as ds
import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.ledger.ledger import SKIPPED_APP_ID, publish_skipped, skipped_location
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.stores.leases import held_leases

FS = OsFileSystem()


@pytest.fixture
def table(tmp_path):
    properties = {"millrace.topic": "events", "millrace.topicId": "id"}
    return Table.load_or_create(
        str(tmp_path / "t"), FS, schema=ENVELOPE_SCHEMA, name="events", configuration=properties
    )


def skip(table, number):
    """A commit that goes on without ten offsets."""
    lost = [{"partition": 0, "from_offset": number * 10, "until_offset": number * 10 + 10, "reason": "retention"}]
    lineage = {"topic": "events", "topic_id": "id", "load_id": str(number), "time_ms": number, "lost": lost}
    table.commit([], expected={}, transactions={SKIPPED_APP_ID: number}, lineage=lineage)


def published(table):
    location = skipped_location(table.location)
    rows = ds.dataset(Table.load(location, FS).files()).to_table(columns=["from_offset"])
    return sorted(rows.column("from_offset").to_pylist())


class WithFirstSync(OsFileSystem):
    """Does something once, when a data file was written and no commit names it yet."""

    def __init__(self, action):
        self.action = action
        self.names = {}

    def open(self, path, *, create=False):
        fd = super().open(path, create=create)
        self.names[fd] = path
        return fd

    def fsync(self, fd):
        super().fsync(fd)
        if self.names[fd].endswith(".parquet") and self.action is not None:
            action, self.action = self.action, None
            action()


def test_vacuum_and_compaction_leave_the_rows_that_are_being_written(table):
    location, left = skipped_location(table.location), []
    for number in (1, 2):
        skip(table, number)
        publish_skipped(table, FS)

    def maintain():
        compact(location, FS, SystemClock())
        left.append(vacuum(location, FS, retention_hours=0).running)

    skip(table, 3)
    assert publish_skipped(table, WithFirstSync(maintain)) == 1
    assert left == [1]
    assert published(table) == [10, 20, 30]
    assert held_leases(location, FS) == set()
    assert vacuum(location, FS, retention_hours=0).files == ()


def test_of_two_that_write_the_rows_one_leaves_nothing(table):
    skip(table, 1)
    with pytest.raises(StaleLedgerError):
        publish_skipped(table, WithFirstSync(lambda: publish_skipped(table, FS)))
    assert published(table) == [10]
    assert vacuum(skipped_location(table.location), FS, retention_hours=0).files == ()
    assert publish_skipped(table, FS) == 0
