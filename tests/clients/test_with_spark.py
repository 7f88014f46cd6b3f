"""Spark's own Kafka source and sink, whose jars `make peers` brings; skipped without them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.java import find_java

JARS = Path(__file__).parents[2] / ".peers" / "spark-kafka" / "libs"
PROGRAM = Path(__file__).parent / "spark_reads_kafka.py"
RECORDS = 1000
TIMEOUT_S = 400

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not (JARS / "no-tokens.jar").exists(), reason="`make peers` brings Spark's Kafka source"),
]


def test_spark_writes_and_reads(target, tmp_path):
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic("spark", 2, 1)])["spark"].result(60)
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(JARS), target.bootstrap, "spark", str(tmp_path)],
        capture_output=True, timeout=TIMEOUT_S, check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().resolve().parents[1])},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr.decode()[-4000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["schema"] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert sorted(found["batch"]) == sorted(f"value-{index}" for index in range(RECORDS))
    assert found["range"] == [[0, 10], [1, 5]]
    assert found["by time"] == RECORDS
    assert found["streams"] == [[RECORDS, RECORDS], [2 * RECORDS, 2 * RECORDS]]
