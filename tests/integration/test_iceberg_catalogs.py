"""Commits through catalogs of every kind, whose answers and requests are lost on the way, beside other committers."""

import pyarrow as pa
import pytest
from hive_metastore.ttypes import ShowLocksRequest
from moto.glue.responses import GlueResponse
from pyiceberg.catalog import MetastoreCatalog

from millrace_pipelines.warehouse import metastore
from millrace_pipelines.warehouse.errors import AddressError, CatalogError, StaleLedgerError, UnsafeStoreError
from millrace_pipelines.warehouse.formats import load_if_there, load_table, load_to_write
from millrace_pipelines.warehouse.iceberg import catalogs, requests
from millrace_pipelines.warehouse.iceberg.addresses import parse_address
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of
from millrace_support import hive_metastore
from millrace_support.iceberg_catalogs import CATALOGS, NAME, catalog, configured, configured_uri, losing_catalog
from millrace_support.iceberg_loaders import load_all, prepared, started
from millrace_support.iceberg_tables import (
    FS,
    LostAnswerError,
    commit_range,
    commits_pass,
    each_once,
    kind_of,
    load_range,
    made,
    offsets,
    other_engine,
    rows_of,
)
from millrace_support.upserts import Upserts

KEYS = [b"%02d" % number for number in range(20)]


@pytest.fixture(scope="module", params=CATALOGS)
def tables(request, tmp_path_factory):
    """Runs a catalog of each kind, and yields what the addresses of its tables begin with."""
    with catalog(request.param, tmp_path_factory.mktemp(request.param)) as prefix:
        yield prefix


@pytest.fixture
def address(tables, request):
    address = f"{tables}shop.{request.node.originalname}"
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
def test_what_is_lost_on_the_way_is_found_out(tables, lost):
    """A lost answer of a REST catalog doubles what Flink writes (apache/iceberg 14425)."""
    address = f"{tables}shop.lost_{len(lost)}"
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

    with commits_pass(act, kind_of(address)):
        assert load_range(address, 20) == 2
    assert len(tries) == (1 if lost == "the answer" else 2)
    assert offsets(load_table(address, FS)) == each_once(20)
    assert load_range(address, 30) == 3


def test_a_lost_answer_leaves_no_lock_in_hives_metastore(tmp_path, monkeypatch):
    monkeypatch.setattr(hive_metastore, "LOCKS_END_AFTER", "300s")
    with losing_catalog("hive", tmp_path, count=1, every=2) as prefix:
        made(address := f"{prefix}shop.events")
        assert load_range(address, 10) == 1
        with metastore.Connections({"uri": configured_uri()}) as client:
            assert not client.show_locks(ShowLocksRequest(dbname="shop", tablename="events")).locks
        assert load_range(address, 20) == 2
        assert offsets(load_table(address, FS)) == each_once(20)


def test_a_commit_between_the_read_and_the_write_of_another_is_not_overwritten(address, monkeypatch):
    """What a catalog compares before it writes is of no use where another commit can come between.

    Hive's lock ends meanwhile, by its time: what counts then is that the metastore compares.
    """
    kind = kind_of(address)
    if not issubclass(kind, MetastoreCatalog):
        pytest.skip("a REST catalog compares in its server")
    load_range(address, 10)
    late, write, came_between = load_to_write(address, FS), kind._write_metadata, []

    def write_late(metadata, io, metadata_path):
        write(metadata, io, metadata_path)
        if not came_between:
            came_between.append(0)
            came_between[0] = load_range(address, 20)

    monkeypatch.setattr(kind, "_write_metadata", staticmethod(write_late))
    with pytest.raises(StaleLedgerError):
        commit_range(late, 15)
    assert came_between == [2]
    assert offsets(load_table(address, FS)) == each_once(20)


def test_two_loaders_race_and_one_is_killed(address):
    for partition in range(2):
        load_range(address, 1, partition=partition)
    context = prepared()
    killed, *others = (started(context, address, 2, 60) for _ in range(3))
    killed.join(0.5)
    killed.kill()
    for one in others:
        one.join()
        assert one.exitcode == 0
    load_all(address, 2, 60)
    assert offsets(load_table(address, FS)) == each_once(60, 60)


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


def test_upserts_delete_rows_by_vectors(tables):
    upserts = Upserts(f"{tables}shop.by_vectors", by_vectors=True)
    upserts.run(*KEYS)
    upserts.run(KEYS[3], KEYS[5])
    upserts.run(KEYS[4], value=None)
    assert other_engine(upserts.address).metadata.format_version == 3
    assert len(upserts.vectors()) == 2
    left = sorted({*KEYS} - {KEYS[4]})
    assert upserts.keys() == left
    assert sorted(other_engine(upserts.address).scan().to_arrow().column("key").to_pylist()) == left


def test_a_namespace_has_as_many_levels_as_its_catalog_takes(tables):
    address = f"{tables}shop.north.{NAME}"
    if kind_of(address).__name__ in ("HiveCatalog", "GlueCatalog"):
        with pytest.raises(AddressError, match="has one level"):
            made(address)
    else:
        made(address)
        assert load_range(address, 3) == 1


MADE_CARELESS = {
    "hive": lambda patch: patch.setattr(metastore, "EXPECTED_KEY", "what a metastore before 2.3.10 does not know"),
    "glue": lambda patch: patch.setattr(GlueResponse, "update_table", MOTOS_OWN_UPDATE),
}
MOTOS_OWN_UPDATE = GlueResponse.update_table


@pytest.mark.parametrize("kind", MADE_CARELESS)
def test_a_catalog_that_does_not_compare_is_refused_and_the_table_stays(kind, tmp_path, monkeypatch):
    with catalog(kind, tmp_path) as prefix:
        made(address := f"{prefix}shop.events")
        load_range(address, 10)
        MADE_CARELESS[kind](monkeypatch)
        catalogs.TRIED.clear()
        with pytest.raises(UnsafeStoreError, match="overwrite one another"):
            load_to_write(address, FS)
        assert offsets(load_table(address, FS)) == each_once(10)


def test_a_catalog_of_another_kind_is_refused():
    nothing = {"py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"}
    with configured(nothing), pytest.raises(UnsafeStoreError, match="NoopCatalog"):
        catalogs.check_commits(parse_address(f"iceberg:{NAME}/shop.events"))


@pytest.mark.parametrize(
    "settings",
    [{"uri": "thrift://127.0.0.1:1"}, {"uri": "thrift://127.0.0.1:1", "type": "HIVE"}, {"uri": "sqlite:///:memory:"}],
)
def test_a_catalog_is_of_the_kind_that_pyiceberg_takes_its_settings_for(settings):
    with configured({"warehouse": "/tmp", **settings}):
        kind = kind_of(f"iceberg:{NAME}/shop.events")
    assert kind.__module__.startswith("millrace_pipelines")
    assert kind.__name__ in {"HiveCatalog", "SqlCatalog"}


SILENT = {
    "hive": {"type": "hive", "uri": "thrift://127.0.0.1:1"},
    "rest": {"type": "rest", "uri": "http://127.0.0.1:1"},
    "postgres": {"type": "sql", "uri": "postgresql+psycopg2://nobody@127.0.0.1:1/none", "warehouse": "/tmp"},
}


@pytest.mark.parametrize("kind", SILENT)
def test_a_catalog_that_is_not_there_is_said_in_a_sentence(kind):
    with configured(SILENT[kind]), pytest.raises(CatalogError, match=r"can't be (asked|opened)"):
        load_table(f"iceberg:{NAME}/shop.events", FS)
