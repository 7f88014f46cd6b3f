"""Racing loaders of one Iceberg table are killed over and over, and answers of its catalog are lost.

Spark compacts the table, expires snapshots and rolls back meanwhile.
"""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import count, takewhile
from typing import NamedTuple

import pytest

from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files
from millrace_pipelines.warehouse.formats import load_table, load_to_write
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of
from millrace_pipelines.warehouse.table.files import is_vector
from millrace_support.iceberg_catalogs import configured_uri, losing_catalog
from millrace_support.iceberg_loaders import LoadRange, append, load_all, prepared, record, started, upsert
from millrace_support.iceberg_tables import FS, each_once, made, offsets, other_engine
from millrace_support.spark_delta import SparkDeltaError
from millrace_support.spark_iceberg import CATALOG, SparkIceberg
from millrace_support.waiting import until

SEED = 20_261_130
LOADERS, PARTITIONS = 2, 3
UNTIL_OFFSET = {append: 1_000, upsert: 600}  # upserts are slower
LONGEST_LAST_RANGE = 100  # once no loader is killed any more
LOST, LOST_EVERY = 60, 5
LONGEST_PAUSE_S = {"embedded": 0.6, "rest": 0.6, "hive": 3.0}  # where a lock of a killed one stays for a while
ATTEMPTS = 5
KILLS_PER_COMMIT = 4  # at least one commit comes in that many kills, however slow the machine is

pytestmark = pytest.mark.timeout(3600)


class Work(NamedTuple):
    """What loaders do, and how what became of it is judged."""

    load: LoadRange
    judge: Callable[[str], None]
    by_vectors: bool = False


def begun(address, work):
    made(address, by_vectors=work.by_vectors)
    for partition in range(PARTITIONS):
        work.load(load_to_write(address, FS), partition, 1, "first")
    return address


def kill_over_and_over(address, kind, load, is_enough):
    """Kills one of the racing loaders after the other at a random moment of its life, and starts another."""
    end = PARTITIONS * UNTIL_OFFSET[load]
    context, chosen = prepared(), random.Random(SEED)
    running = [started(context, address, PARTITIONS, UNTIL_OFFSET[load], load) for _ in range(LOADERS)]
    for number in takewhile(lambda number: not is_enough(number), count()):
        if number % KILLS_PER_COMMIT == 0:
            wait_for_loads(address, end)
        time.sleep(chosen.uniform(0, LONGEST_PAUSE_S[kind]))
        running[number % LOADERS].kill()
        running[number % LOADERS].join()
        running[number % LOADERS] = started(context, address, PARTITIONS, UNTIL_OFFSET[load], load)
    for one in running:
        one.kill()
        one.join()


def wait_for_loads(address, end):
    """Waits until loaders have committed more than now, or all up to `end`."""
    before = reached(address)
    until(lambda: reached(address), lambda now: now > before or now == end)


def reached(address):
    """Returns how many offsets a table has by its ledger."""
    return sum(entry.next_offset for entry in ledger_of(load_table(address, FS)).partitions.values())


def check(address):
    """Lets the rest be loaded, and checks that each offset is there once, and told once by the history."""
    load_all(address, PARTITIONS, UNTIL_OFFSET[append], longest_range=LONGEST_LAST_RANGE)
    found = load_table(address, FS)
    assert offsets(found) == each_once(*[UNTIL_OFFSET[append]] * PARTITIONS)
    check_history(found, UNTIL_OFFSET[append])


def check_newest(address):
    """Lets the rest be loaded, and checks that the newest record of each key is there, and none that is deleted."""
    load_all(address, PARTITIONS, UNTIL_OFFSET[upsert], upsert, LONGEST_LAST_RANGE)
    records = [record(partition, offset) for partition in range(PARTITIONS) for offset in range(UNTIL_OFFSET[upsert])]
    newest = {one["key"]: one for one in records}
    found = load_table(address, FS)
    for rows in (found.dataset().to_table(), other_engine(address).scan().to_arrow()):
        there = sorted((row["key"], row["offset"], row["value"]) for row in rows.to_pylist())
        wanted = sorted((key, one["offset"], one["value"]) for key, one in newest.items() if one["value"] is not None)
        assert there == wanted
    check_history(found, UNTIL_OFFSET[upsert])
    assert audit_stored_files(address).findings == ()
    assert any(is_vector(name) for name in found.store.names()) == (found.row_marker is not None)


def check_history(found, until_offset):
    """Checks that the ledger has all offsets, and that the history tells each once."""
    assert ledger_of(found).partitions == {one: LedgerEntry(0, until_offset) for one in range(PARTITIONS)}
    claimed = [part for one in found.lineage() for part in one["ranges"]]
    for partition in range(PARTITIONS):
        ends = [(one["from_offset"], one["until_offset"]) for one in claimed if one["partition"] == partition]
        assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])]


WORKS = {
    "appends": Work(append, check),
    "upserts": Work(upsert, check_newest),
    "upserts by vectors": Work(upsert, check_newest, by_vectors=True),
}


@pytest.mark.soak(rounds=40, soak_rounds=200)
@pytest.mark.parametrize("kind", LONGEST_PAUSE_S)
@pytest.mark.parametrize("work", WORKS.values(), ids=list(WORKS))
def test_each_offset_is_loaded_once_whatever_is_killed_and_lost(kind, work, tmp_path, rounds):
    with losing_catalog(kind, tmp_path, count=LOST, every=LOST_EVERY) as prefix:
        address = begun(f"{prefix}shop.events", work)
        kills = len(list(rounds))
        kill_over_and_over(address, kind, work.load, lambda number: number == kills)
        work.judge(address)


def compact(spark):
    options = "map('rewrite-all', 'true')"
    spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => 'shop.events', options => {options})")


def expire(spark):
    spark.sql(f"CALL {CATALOG}.system.expire_snapshots('shop.events', TIMESTAMP '2100-01-01 00:00:00', 3)")


def roll_back(spark):
    history = f"{CATALOG}.shop.events.history"
    line = spark.sql(f"SELECT snapshot_id FROM {history} WHERE is_current_ancestor ORDER BY made_current_at")
    spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('shop.events', {line[-2][0]})")


CHANGES = (compact, roll_back, expire)


def insist_after_loads(change, spark, address, end):
    """Makes a change as `insist` does, once loaders have committed more, or all up to `end`; returns whether it did."""
    wait_for_loads(address, end)
    return insist(change, spark)


def insist(change, spark):
    """Makes a change, again where a loader's commit came first; returns whether it was made."""
    for _ in range(ATTEMPTS):
        with suppress(SparkDeltaError):
            change(spark)
            return True
    return False


@pytest.mark.parametrize("kind", LONGEST_PAUSE_S)
@pytest.mark.parametrize("work", WORKS.values(), ids=list(WORKS))
def test_an_engine_that_compacts_expires_and_rolls_back_beside_killed_loaders_loses_nothing(kind, work, tmp_path):
    directory = tmp_path / "spark"
    directory.mkdir()
    embedded = nullcontext(f"iceberg:{tmp_path}/")  # which Spark knows by the same name
    server = losing_catalog(kind, tmp_path, count=LOST, every=LOST_EVERY)
    with embedded if kind == "embedded" else server as prefix:
        address = begun(f"{prefix}shop.events", work)
        settings = None if kind == "embedded" else {"type": kind, "uri": configured_uri()}
        end = PARTITIONS * UNTIL_OFFSET[work.load]
        with SparkIceberg(tmp_path, directory, settings) as spark, ThreadPoolExecutor(1) as pool:
            ended = threading.Event()
            killing = pool.submit(kill_over_and_over, address, kind, work.load, lambda _: ended.is_set())
            try:
                made_now = [one.__name__ for one in CHANGES if insist_after_loads(one, spark, address, end)]
            finally:
                ended.set()
            killing.result()
        assert made_now == [change.__name__ for change in CHANGES]
        work.judge(address)
