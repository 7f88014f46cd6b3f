"""Downstream jobs for tests: the workers of a run import them from here."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from millrace.client.consumer import Message
from millrace_ops.demo.carrier_delays import SCHEMA, carrier_delays
from millrace_pipelines.arrow import Field
from millrace_pipelines.downstream import Form, micro_batch_job

BATCH_S = 0.05
FIELDS: list[Field] = [
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("value", pa.string()),
]
LISTED = pa.schema(FIELDS)


@micro_batch_job(topic="flights", schema=SCHEMA, max_records=500)
def small_delays(rows: pa.Table, messages: Sequence[Message]) -> pa.Table:
    """Keeps the carriers' delays in small batches that take their time, so that a kill meets each step."""
    time.sleep(BATCH_S)
    return carrier_delays.process(rows, messages)


@micro_batch_job(topic="words", schema=LISTED, form=Form.APPEND)
def listed(_: pa.Table, messages: Sequence[Message]) -> pa.Table:
    """Lists what it is given; fails on the value `bad`."""
    rows = [(one.partition, one.offset, (one.value or b"").decode()) for one in messages]
    if any(value == "bad" for *_, value in rows):
        raise ValueError("a bad value")
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=LISTED)


@micro_batch_job(topic="gates", schema=LISTED, form=Form.APPEND)
def gated(_: pa.Table, messages: Sequence[Message]) -> pa.Table:
    """Writes its process id into the folder that the first value names, waits there for the file `go`, and fails."""
    folder = Path((messages[0].value or b"").decode())
    (folder / "pid.new").write_text(str(os.getpid()), encoding="utf-8")
    (folder / "pid.new").rename(folder / "pid")
    while not (folder / "go").exists():
        time.sleep(0.1)
    raise ValueError("the gate is open")
