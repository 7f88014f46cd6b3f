"""A table whose upserts delete rows by vectors, beside Spark with Delta's own jars, which reads, deletes and purges."""

from pathlib import Path

import pytest

from millrace_pipelines.warehouse.delta.table import Table
from millrace_support.spark_delta import SparkDelta
from millrace_support.upserts import FS, Upserts

DELTA_JARS = Path(__file__).parents[2] / ".peers" / "spark-delta" / "libs"
KEYS = [b"%05d" % number for number in range(10_000)]

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not any(DELTA_JARS.glob("*.jar")), reason="`make peers` brings Delta's jars for Spark"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with SparkDelta(DELTA_JARS, tmp_path_factory.mktemp("spark")) as spark:
        yield spark


def test_spark_and_upserts_see_one_anothers_vectors(tmp_path, spark):
    upserts = Upserts(tmp_path / "events", by_vectors=True)
    name = f"delta.`{upserts.location}`"

    def keys():
        rows = spark.sql(f"SELECT CAST(key AS STRING) FROM {name} ORDER BY key")
        assert [key.encode() for [key] in rows] == upserts.keys()
        return upserts.keys()

    upserts.run(*KEYS)
    upserts.run(*KEYS[::2][:4500])  # a bitmap of bits
    upserts.run(KEYS[1], KEYS[7], value=None)
    left = sorted({*KEYS} - {KEYS[1], KEYS[7]})
    assert keys() == left
    spark.sql(f"DELETE FROM {name} WHERE CAST(key AS STRING) < '00010'")
    assert upserts.run(KEYS[2], KEYS[3], KEYS[11]).inserted == 2
    left = sorted({*KEYS[10:], KEYS[2], KEYS[3]})
    assert keys() == left
    spark.sql(f"REORG TABLE {name} APPLY (PURGE)")
    assert not Table.load(upserts.location, FS).kept_rows()
    assert upserts.run(KEYS[12], KEYS[9]).updated == 1
    assert keys() == sorted({*left, KEYS[9]})
