"""Dagster's storage whose connections stay open: it answers as Dagster's own does, beside it, and pages follow it."""

import threading
from contextlib import suppress

import dagster as dg
import psutil
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from millrace_ops.supervisor.dagster_instance import write_instance
from millrace_ops.supervisor.dagster_storage import OPEN_SHARDS, SqliteEventLog


@dg.asset
def rows():
    """Stands for a table."""
    return dg.MaterializeResult(metadata={"dagster/row_count": 3})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("dagster")
    write_instance(str(home), 4266, 4267)
    return home


@pytest.fixture(scope="module")
def instance(home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture(scope="module")
def run_id(instance):
    return dg.materialize([rows], instance=instance).run_id


def store_runs(storage, prefix, event):
    """Stores an event in more runs than stay open; returns their ids."""
    runs = [f"{prefix}-{number}" for number in range(OPEN_SHARDS + 2)]
    for run_id in runs:
        storage.store_event(event._replace(run_id=run_id))
    return runs


def own_storage(home, instance):
    storage = SqliteEventLogStorage(str(home / "storage/history/runs"))
    storage.register_instance(instance)
    return storage


def events(storage, run_id):
    return [record.event_log_entry for record in storage.get_records_for_run(run_id).records]


def test_more_runs_than_it_keeps_open_are_as_dagsters_own_storage_reads_them(home, instance, run_id):
    storage, own = instance.event_log_storage, own_storage(home, instance)
    assert isinstance(storage, SqliteEventLog)
    assert events(storage, run_id) == events(own, run_id)
    loaded = instance.get_latest_materialization_event(rows.key)
    runs = store_runs(storage, "many", loaded)
    for other in runs:
        assert events(storage, other) == events(own, other) == [loaded._replace(run_id=other)]
    newest = instance.get_latest_materialization_event(rows.key)
    assert newest == own.get_latest_materialization_events([rows.key])[rows.key]
    assert newest.run_id == runs[-1]


def test_few_files_are_open_however_many_runs_there_are(home, instance, run_id):
    def open_runs():
        return [
            file.path for file in psutil.Process().open_files() if "/few-" in file.path and file.path.endswith(".db")
        ]

    loaded = instance.get_latest_materialization_event(rows.key)
    with dg.DagsterInstance.from_config(str(home)) as another:
        store_runs(another.event_log_storage, "few", loaded)
        assert len(open_runs()) == OPEN_SHARDS - 1  # and the index
    assert open_runs() == []


def test_dagsters_own_storage_may_write_at_the_same_time(home, instance, run_id):
    storage, own = instance.event_log_storage, own_storage(home, instance)
    [first, *others] = events(own, run_id)
    for _ in range(3):
        own.store_event(first)
        storage.store_event(first)
    assert events(own, run_id) == events(storage, run_id) == [first, *others, *[first] * 6]


def test_a_page_that_follows_a_run_hears_of_each_event(home, instance, run_id):
    heard, all_heard = [], threading.Event()

    def follow(entry, _cursor):
        heard.append(entry)
        if len(heard) == 3:
            all_heard.set()

    storage = instance.event_log_storage
    [first, *_] = events(storage, run_id)
    with dg.DagsterInstance.from_config(str(home)) as page:
        page.event_log_storage.watch(run_id, storage.get_records_for_run(run_id).cursor, follow)
        for _ in range(3):
            storage.store_event(first)
        assert all_heard.wait(60)
        page.event_log_storage.end_watch(run_id, follow)
    assert heard == [first] * 3


def test_what_fails_inside_a_transaction_leaves_nothing(instance):
    storage = instance.event_log_storage
    with suppress(ZeroDivisionError), storage.index_connection() as connection:
        connection.exec_driver_sql("INSERT INTO asset_keys (asset_key) VALUES ('[\"lost\"]')")
        raise ZeroDivisionError
    assert not storage.has_asset_key(dg.AssetKey("lost"))
