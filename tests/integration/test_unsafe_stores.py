"""A store in which two writers could overwrite one another's commit: it is read, and nothing is written into it.

moto plays it, behind a relay that forgets the conditions of requests.
"""

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import UnsafeStoreError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.bucket import LOCK_VARIABLE, TRIED
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_support.loads import Loads
from millrace_support.stores.stand_ins import forgetting_conditions, moto

FS = OsFileSystem()


def write(location):
    with lease(location, "load", FS):
        Loads(location).load((2, 4), [2, 3])


WRITES = {
    "make": lambda address: Loads(f"{address}/new/events"),
    "load": lambda address: write(f"{address}/there/events"),
    "compact": lambda address: compact(f"{address}/there/events", FS, SystemClock()),
    "erase": lambda address: erase(f"{address}/there/events", [b"k"], FS),
}


@pytest.fixture(scope="module")
def store():
    """A bucket with a table of two commits."""
    with moto() as running:
        use_store_options({running.address: running.options})
        loads = Loads(f"{running.address}/there/events")
        for offset in (0, 1):
            loads.load((offset, offset + 1), [offset], keeps=True, values={"key": [b"k"]})
        yield running
        use_store_options({})


@pytest.fixture
def untried():
    TRIED.clear()
    yield
    TRIED.clear()


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("act", WRITES)
def test_a_store_that_forgets_conditions_is_read_and_not_written(store, act):
    before = store_at(f"{store.address}/there/events", FS).names()
    with forgetting_conditions(store) as forgetful:
        use_store_options({store.address: forgetful.options})
        with pytest.raises(UnsafeStoreError, match="does not honour a conditional create"):
            WRITES[act](store.address)
        assert audit(f"{store.address}/there/events", fs=FS) == []
    use_store_options({store.address: store.options})
    assert Table.load(f"{store.address}/there/events", FS).version == 2
    assert store_at(f"{store.address}/there/events", FS).names() == before
    assert store_at(f"{store.address}/new/events", FS).names() == []


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("act", WRITES)
def test_where_others_commit_by_a_lock_in_dynamodb_nothing_is_written(store, monkeypatch, act):
    monkeypatch.setenv(LOCK_VARIABLE, "dynamodb")
    with pytest.raises(UnsafeStoreError, match="a lock in DynamoDB"):
        WRITES[act](store.address)
    assert audit(f"{store.address}/there/events", fs=FS) == []
