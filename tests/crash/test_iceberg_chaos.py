"""Racing loaders of one Iceberg table are killed over and over, and answers of its catalog are lost.

Beside an embedded catalog Spark compacts the table, expires snapshots and rolls back meanwhile.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, takewhile

import pytest

from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of
from millrace_support.iceberg_catalogs import losing_catalog
from millrace_support.iceberg_loaders import load_all, prepared, started
from millrace_support.iceberg_tables import FS, each_once, load_range, made, offsets
from millrace_support.spark_delta import SparkDeltaError
from millrace_support.spark_iceberg import CATALOG, SparkIceberg

SEED = 20_261_130
LOADERS, KILLS, PARTITIONS = 2, 200, 3
UNTIL_OFFSET = 1_000
LOST, LOST_EVERY = 60, 5
LONGEST_LIFE_S = 0.6
ATTEMPTS = 5


def begun(address):
    made(address)
    for partition in range(PARTITIONS):
        load_range(address, 1, partition=partition)
    return address


def kill_over_and_over(address, is_enough):
    """Kills one of the racing loaders after the other at a random moment of its life, and starts another."""
    context, chosen = prepared(), random.Random(SEED)
    running = [started(context, address, PARTITIONS, UNTIL_OFFSET) for _ in range(LOADERS)]
    for number in takewhile(lambda number: not is_enough(number), count()):
        time.sleep(chosen.uniform(0, LONGEST_LIFE_S))
        running[number % LOADERS].kill()
        running[number % LOADERS].join()
        running[number % LOADERS] = started(context, address, PARTITIONS, UNTIL_OFFSET)
    for one in running:
        one.kill()
        one.join()


def check(address):
    """Lets the rest be loaded, and checks that each offset is there once, and told once by the history."""
    load_all(address, PARTITIONS, UNTIL_OFFSET)
    found = load_table(address, FS)
    assert offsets(found) == each_once(*[UNTIL_OFFSET] * PARTITIONS)
    assert ledger_of(found).partitions == {one: LedgerEntry(0, UNTIL_OFFSET) for one in range(PARTITIONS)}
    claimed = [part for one in found.lineage() for part in one["ranges"]]
    for partition in range(PARTITIONS):
        ends = [(one["from_offset"], one["until_offset"]) for one in claimed if one["partition"] == partition]
        assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])]


@pytest.mark.parametrize("kind", ["embedded", "rest", "hive"])
def test_each_offset_is_loaded_once_whatever_is_killed_and_lost(kind, tmp_path):
    with losing_catalog(kind, tmp_path, count=LOST, every=LOST_EVERY) as prefix:
        address = begun(f"{prefix}shop.events")
        kill_over_and_over(address, lambda number: number == KILLS)
        check(address)


def compact(spark):
    options = "map('rewrite-all', 'true')"
    spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => 'shop.events', options => {options})")


def expire(spark):
    spark.sql(f"CALL {CATALOG}.system.expire_snapshots('shop.events', TIMESTAMP '2100-01-01 00:00:00', 3)")


def roll_back(spark):
    history = f"{CATALOG}.shop.events.history"
    line = spark.sql(f"SELECT snapshot_id FROM {history} WHERE is_current_ancestor ORDER BY made_current_at")
    spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('shop.events', {line[-2][0]})")


def insist(change, spark):
    """Makes a change, again where a loader's commit came first; returns whether it was made."""
    for _ in range(ATTEMPTS):
        with suppress(SparkDeltaError):
            change(spark)
            return True
    return False


def test_each_offset_is_loaded_once_beside_an_engine_that_compacts_expires_and_rolls_back(tmp_path):
    address = begun(f"iceberg:{tmp_path}/shop.events")
    directory = tmp_path / "spark"
    directory.mkdir()
    with SparkIceberg(tmp_path, directory) as spark, ThreadPoolExecutor(1) as pool:
        ended = threading.Event()
        killing = pool.submit(kill_over_and_over, address, lambda _: ended.is_set())
        try:
            made_now = [(change.__name__, insist(change, spark)) for change in (compact, roll_back, expire)]
        finally:
            ended.set()
        killing.result()
    assert {name for name, is_made in made_now if is_made} == {"compact", "roll_back", "expire"}
    check(address)
