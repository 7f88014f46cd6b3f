"""Topics with records for `dagster`, and bare loads of them: processes with their own Spark sessions."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.errors import PlatformError
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace_benchmarks.load_topics import FIRST_TIMESTAMP_MS, KEPT, append
from millrace_benchmarks.payloads import text

MASTER = "local[*,3]"  # as `millrace up` has it by default
VALUE_BYTES = 20
BATCH_RECORDS = 10_000
LOAD_TIMEOUT_S = 600.0


def create_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Creates topics of one partition."""
    with Cluster(bootstrap) as cluster:
        for name in names:
            Admin(cluster).create_topic(name, 1, config=KEPT)


def send(bootstrap: str, topics: Iterable[str], records: int) -> None:
    """Appends records to each topic, in batches of at most BATCH_RECORDS."""
    with Cluster(bootstrap) as cluster:
        for topic in topics:
            for begun in range(0, records, BATCH_RECORDS):
                append(cluster, topic, 0, _batch(min(BATCH_RECORDS, records - begun)))


def bare_load(bootstrap: str, topic: str, table: Path, master: str = MASTER) -> float:
    """Runs `warehouse load` and returns its seconds, from the start of the process to its end."""
    place = ("--table", str(table), "--bootstrap", bootstrap, "--master", master)
    command = (sys.executable, "-m", "millrace_ops", "warehouse", "load", topic, *place)
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LOAD_TIMEOUT_S)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise PlatformError(f"the bare load of {topic} ended with status {done.returncode}: {done.stderr}")
    return seconds


@cache
def _batch(records: int) -> bytes:
    values = text(VALUE_BYTES * records)
    cuts = (values[start : start + VALUE_BYTES] for start in range(0, len(values), VALUE_BYTES))
    return encode_batch([NewRecord(cut, timestamp_ms=FIRST_TIMESTAMP_MS) for cut in cuts], codec=Codec.LZ4)
