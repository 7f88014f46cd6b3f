"""Commits through Iceberg's own REST catalog server, whose answers and requests are lost on the way."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.formats import load_if_there, load_table, load_to_write
from millrace_pipelines.warehouse.iceberg import requests
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of
from millrace_support.iceberg_rest import NAME, rest_catalog
from millrace_support.iceberg_tables import (
    FS,
    LostAnswerError,
    commit_range,
    commits_pass,
    each_once,
    load_range,
    made,
    offsets,
    other_engine,
    rows_of,
)


@pytest.fixture(scope="module", autouse=True)
def catalog(tmp_path_factory):
    with rest_catalog(tmp_path_factory.mktemp("rest")):
        yield


@pytest.fixture
def address(request):
    address = f"iceberg:{NAME}/shop.{request.node.originalname}"
    assert load_if_there(address, FS) is None
    made(address)
    return address


def test_commits_follow_one_another(address):
    assert [load_range(address, 10), load_range(address, 5, partition=1), load_range(address, 25)] == [1, 2, 3]
    found = load_table(address, FS)
    assert offsets(found) == each_once(25, 5)
    assert ledger_of(found).partitions == {0: LedgerEntry(0, 25), 1: LedgerEntry(0, 5)}
    assert [one["version"] for one in found.lineage()] == [1, 2, 3]


def test_a_late_commit_is_refused(address):
    late = load_to_write(address, FS)
    load_range(address, 10)
    with pytest.raises(StaleLedgerError):
        commit_range(late, 7)
    assert offsets(load_table(address, FS)) == each_once(10)


def test_another_engine_moves_no_offset(address):
    load_range(address, 10)
    other_engine(address).append(rows_of(7, 0, 3))
    assert load_range(address, 20) == 3
    assert offsets(load_table(address, FS)) == each_once(20) + each_once(*[0] * 7, 3)


@pytest.mark.parametrize("lost", ["the answer", "the request", "the request, which comes late"])
def test_what_is_lost_on_the_way_is_found_out(lost):
    """A lost answer of a REST catalog doubles what Flink writes (apache/iceberg 14425)."""
    address = f"iceberg:{NAME}/shop.lost_{len(lost)}"
    made(address)
    load_range(address, 10)
    tries = []

    def act(commit):
        tries.append(commit)
        if len(tries) == 1:
            if lost == "the answer":
                commit()
            raise LostAnswerError
        if lost.endswith("late"):
            tries[0]()
        return commit()

    with commits_pass(act, RestCatalog):
        assert load_range(address, 20) == 2
    assert len(tries) == (1 if lost == "the answer" else 2)
    assert offsets(load_table(address, FS)) == each_once(20)
    assert load_range(address, 30) == 3


def test_columns_and_properties_are_set_with_a_snapshot(address):

    loaded = load_to_write(address, FS)
    loaded.add_columns(pa.schema([pa.field("id", pa.int32())]), lineage={"kind": "schema"})
    loaded.add_columns(pa.schema([pa.field("id", pa.int64())]), lineage={"kind": "schema"})
    assert loaded.configure({"millrace.x": "y"}, expected={}, transactions={"a": 1}, lineage={"kind": "k"}) == 3
    found = load_table(address, FS)
    assert (found.schema.field("id").type, found.configuration["millrace.x"]) == (pa.int64(), "y")
    assert found.transaction_version("a") == 1


def test_commits_expire_snapshots(address, monkeypatch):
    monkeypatch.setattr(requests, "KEPT_SNAPSHOTS", 5)
    for number in range(12):
        load_range(address, number + 1)
    assert len(other_engine(address).metadata.snapshots) == 5
    assert len(load_table(address, FS).lineage()) == 12
