"""Spark's commits to a table in Hive's metastore that are held up on the way, while a load commits."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.addresses import parse_address
from millrace_pipelines.warehouse.formats import load_table
from millrace_support.hive_metastore import hive_metastore
from millrace_support.holding_relay import HoldingRelay
from millrace_support.iceberg_catalogs import COMMITS, NAME, configured
from millrace_support.iceberg_tables import FS, each_once, load_range, made_of_two_files, offsets
from millrace_support.spark_iceberg import CATALOG, SparkIceberg
from millrace_support.waiting import PATIENCE_S

LOCK = "hadoop.iceberg.engine.hive.lock-enabled"
ADDRESS = f"iceberg:{NAME}/shop.events"
COMPACT = f"CALL {CATALOG}.system.rewrite_data_files(table => 'shop.events', options => map('rewrite-all', 'true'))"


@pytest.mark.parametrize(
    ("is_locked", "left"),
    [
        pytest.param("false", 30, id="compared by the metastore"),
        pytest.param("true", 20, id="under a lock that has ended"),
    ],
)
def test_a_late_commit_of_sparks_overwrites_none_where_the_metastore_compares(is_locked, left, tmp_path):
    """What was overwritten is loaded again."""
    with (
        hive_metastore(tmp_path) as uri,
        HoldingRelay(parse_address(uri.removeprefix("thrift://")), COMMITS["hive"]) as relay,
        configured({"type": "hive", "uri": uri}),
    ):
        made_of_two_files(ADDRESS)
        by_relay = {"type": "hive", "uri": f"thrift://{relay.address}", LOCK: is_locked}
        with SparkIceberg(tmp_path, tmp_path, by_relay) as spark, ThreadPoolExecutor(1) as pool:
            compacting = pool.submit(spark.sql, COMPACT)
            try:
                assert relay.held.wait(PATIENCE_S)
                assert load_range(ADDRESS, 30) == 3
            finally:
                relay.let_go()
            compacting.result()
        assert offsets(load_table(ADDRESS, FS)) == each_once(left)
        load_range(ADDRESS, 40)
        assert offsets(load_table(ADDRESS, FS)) == each_once(40)
