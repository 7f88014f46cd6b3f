"""Measures the memory of an upsert and an audit: `measured_rewrites.py DIRECTORY FILES ROWS CHANGES BYTES`.

Makes a table of newest records, with FILES files of ROWS rows each, a key of 16 bytes and a value of BYTES in each row,
which are in no order of the keys, and upserts CHANGES records. This process is the driver; the pieces of work run one
after the other in a process of their own, as Spark's workers of one core do. Prints as JSON how many MiB each has had
at most, and how large the table's rows are in memory.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA, Column, nulls_of
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter
from millrace_support.loads import PROPERTIES

Piece = TypeVar("Piece")
Result = TypeVar("Result")

FS = OsFileSystem()
BLOCK_ROWS = 100_000


def peak_mib() -> float:
    """Returns how much memory this process has had at most; its usage by `getrusage` begins with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def worked(sent: bytes) -> tuple[bytes, float]:
    """Returns the pickled result of a pickled work and piece, and the peak of the memory of the process."""
    work, piece = pickle.loads(sent)  # noqa: S301  our own bytes
    return cloudpickle.dumps(work(piece)), peak_mib()  # type: ignore[no-untyped-call]


class MeasuredTasks:
    """Works on one piece after the other in a process of its own, and keeps the peak of its memory."""

    at_once = 1
    may_repeat = True

    def __init__(self) -> None:
        self.peak_mib = 0.0

    def run(self, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
        """Yields the result of each piece, in their order."""
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for piece in pieces:
                answer, peak = pool.apply(worked, [cloudpickle.dumps((work, piece))])  # type: ignore[no-untyped-call]
                self.peak_mib = max(self.peak_mib, peak)
                result: Result = pickle.loads(answer)  # noqa: S301  our own bytes
                yield result


def rows_of(keys: np.typing.NDArray[np.int64], first_offset: int, value_bytes: int) -> pa.Table:
    """Returns rows of partition 0 with these keys, from an offset on."""
    count = len(keys)
    words = np.zeros((count, 2), ">i8")
    words[:, 1] = keys
    starts = [np.arange(count + 1, dtype=np.int32) * size for size in (words[0].nbytes, value_bytes)]
    contents = [words.tobytes(), bytes(count * value_bytes)]
    binary = [
        pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(where.tobytes()), pa.py_buffer(content)])
        for where, content in zip(starts, contents, strict=True)
    ]
    given: dict[str, Column] = {
        "topic": pa.repeat(pa.scalar("events", pa.string()), count),
        "partition": pa.array(np.zeros(count, np.int32)),
        "offset": pa.array(np.arange(first_offset, first_offset + count, dtype=np.int64)),
        "key": binary[0],
        "value": binary[1],
    }
    columns: list[Column] = [given.get(field.name, nulls_of(field.type, count)) for field in ENVELOPE_SCHEMA]
    return pa.Table.from_arrays(columns, schema=ENVELOPE_SCHEMA)


def written(
    directory: str, keys: np.typing.NDArray[np.int64], first_offset: int, value_bytes: int
) -> tuple[DataFile, int]:
    """Writes a file of rows with these keys; returns it, and the bytes of its rows in memory."""
    in_memory = 0
    with DataFileWriter(directory, "load", 0, ENVELOPE_SCHEMA, FS) as writer:
        for first in range(0, len(keys), BLOCK_ROWS):
            rows = rows_of(keys[first : first + BLOCK_ROWS], first_offset + first, value_bytes)
            in_memory += rows.nbytes
            writer.write(rows)
        file = writer.finish()
    assert file is not None
    return file, in_memory


def loaded(directory: str, files: int, rows: int, value_bytes: int) -> int:
    """Commits a table of newest records, whose files have each the keys of no other; returns its bytes in memory."""
    properties = PROPERTIES | {"millrace.mode": "upsert"}
    table = Table.load_or_create(directory, FS, schema=ENVELOPE_SCHEMA, name="events", configuration=properties)
    total = files * rows
    keys = np.random.default_rng(1).permutation(total)
    made = [written(directory, keys[first : first + rows], first, value_bytes) for first in range(0, total, rows)]
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, total)})
    lineage = lineage_of(0, total, ledger_of(table).name)
    counts = {"inserted": total, "updated": 0, "deleted": 0, "stale": 0, "keyless": 0}
    added = [file for file, _ in made]
    table.commit(added, expected=expected, transactions=transactions, lineage={**lineage, "upsert": counts})
    return sum(in_memory for _, in_memory in made)


def lineage_of(first: int, end: int, ledger: str) -> dict[str, object]:
    """Returns the lineage of a load whose offsets all gave a row."""
    span = {"partition": 0, "from_offset": first, "until_offset": end, "rows": end - first, "dead_letters": 0}
    return {"kind": "load", "ledger": ledger, "ranges": [span]}


def upserted(directory: str, changes: int, total: int, value_bytes: int, tasks: MeasuredTasks) -> None:
    """Upserts newer records of keys that the table has, from all over it."""
    keys = np.random.default_rng(2).choice(total, changes, replace=False)
    file, _ = written(directory, keys, total, value_bytes)
    table = Table.load(directory, FS)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, total + changes)})
    lineage = lineage_of(total, total + changes, ledger_of(table).name)
    upsert = Upsert([file], FS, expected=expected, transactions=transactions, lineage=lineage, tasks=tasks)
    _, counts = upsert.commit(directory)
    store_at(directory, FS).remove(file.name)
    assert (counts.updated, counts.inserted) == (changes, 0)


def main(directory: str, files: int, rows: int, changes: int, value_bytes: int) -> None:
    """Prints the peaks of the driver's memory and of the tasks'."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # what makes the table is not measured
        table_bytes = pool.apply(loaded, [directory, files, rows, value_bytes])
    before, upsert_tasks, audit_tasks = peak_mib(), MeasuredTasks(), MeasuredTasks()
    upserted(directory, changes, files * rows, value_bytes, upsert_tasks)
    after_upsert = peak_mib()
    findings = audit(directory, tasks=audit_tasks)
    found = {
        "table": table_bytes / 2**20,
        "driver before": before,
        "driver of the upsert": after_upsert,
        "driver of the audit": peak_mib(),
        "task of the upsert": upsert_tasks.peak_mib,
        "task of the audit": audit_tasks.peak_mib,
    }
    sys.stdout.write(json.dumps({"findings": findings} | {name: round(mib) for name, mib in found.items()}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
