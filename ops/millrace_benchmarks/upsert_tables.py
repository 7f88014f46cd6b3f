"""A table with one row for each key as `bench upsert` has it, and one upsert into it in a process of its own.

The process prints what it took: seconds, processor seconds, and the most memory that it had, of driver and tasks
together, for its tasks are threads.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from millrace_benchmarks.harness import Samples
from millrace_pipelines.arrow import ENVELOPE_SCHEMA, Column, Indices, nulls_of
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.keys.key_hashes import salt_of
from millrace_pipelines.warehouse.keys.key_index import EntriesOfRows
from millrace_pipelines.warehouse.keys.lookup import keep_index
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import TOPIC_ID_PROPERTY, TOPIC_PROPERTY
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter
from millrace_pipelines.warehouse.tables.open import mode_properties
from millrace_pipelines.warehouse.tasks import Threads

Keys: TypeAlias = Literal["random", "recent"]
FILE_ROWS = 1_000_000
CHANGES = 1_000_000
BLOCK_ROWS = 1 << 17
DIGITS = 12
VALUE_BYTES = 20
STAGED_FILES = 2
MICROSECONDS = 1_700_000_000_000_000
KIBIBYTE = 1 << 10


@dataclass(frozen=True, slots=True)
class Upserted:
    """A table with the keys 0 to `keys` - 1, in files of FILE_ROWS keys that follow one another."""

    location: str
    keys: int

    @classmethod
    def made(cls, location: Path | str, keys: int, *, by_vectors: bool) -> Upserted:
        """Makes the table, with the indexes of its files."""
        properties = {TOPIC_PROPERTY: "bench", TOPIC_ID_PROPERTY: "bench", **mode_properties(Mode.UPSERT)}
        schema = ENVELOPE_SCHEMA
        table = load_or_create(
            str(location), DISK,
            schema=schema, name="bench", configuration=properties, deletion_vectors=by_vectors,
        )  # fmt: skip
        salt = salt_of(table.id)
        files = [
            _written(table.location, "made", np.arange(first, min(first + FILE_ROWS, keys)), first, salt)
            for first in range(0, keys, FILE_ROWS)
        ]
        table.commit(files, expected={}, transactions={}, lineage={"kind": "load"})
        return cls(table.location, keys)

    def measure(self, which: Keys, workers: int) -> Samples:
        """Upserts CHANGES keys in a process of its own, with so many tasks at once; returns what that took."""
        program = [sys.executable, "-m", __name__, self.location, str(self.keys), which, str(workers)]
        done = subprocess.run(program, check=True, stdout=subprocess.PIPE)
        samples: Samples = json.loads(done.stdout)
        return samples


def changes_in(keys: int) -> int:
    """Returns how many keys are changed in a table of so many."""
    return min(CHANGES, keys // 2)


class _Workers(Threads):
    """So many threads as tasks."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    @property
    def at_once(self) -> int:
        """Returns the number of threads."""
        return self._workers


def _upsert(location: str, keys: int, which: Keys, workers: int) -> Samples:
    random = np.random.default_rng(load_table(location, DISK).version)
    first = keys * (load_table(location, DISK).version + 1)  # of the offsets, behind all that are there
    changes = changes_in(keys)
    numbers = random.choice(keys, changes, replace=False) if which == "random" else np.arange(keys - changes, keys)
    staged = [
        _written(location, "staged", part, first + at) for at, part in _parts(numbers.astype(np.int64), STAGED_FILES)
    ]
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    upsert = Upsert(staged, DISK, expected={}, transactions={}, lineage={"kind": "load"}, tasks=_Workers(workers))
    _, counts = upsert.commit(location)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    assert counts.updated == changes, counts
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor": processor, "mebibytes": after.ru_maxrss / KIBIBYTE}


def _parts(numbers: Indices, parts: int) -> Iterator[tuple[int, Indices]]:
    size = -(-len(numbers) // parts)
    return ((first, numbers[first : first + size]) for first in range(0, len(numbers), size))


def _written(location: str, load_id: str, numbers: Indices, first: int, salt: bytes | None = None) -> DataFile:
    """Writes a file of keys by their numbers, at offsets from `first` on; with a salt, its index, too."""
    entries = None if salt is None else EntriesOfRows(salt)
    with DataFileWriter(location, load_id, 0, ENVELOPE_SCHEMA, DISK) as writer:
        for at, part in zip(count(first, BLOCK_ROWS), np.split(numbers, range(BLOCK_ROWS, len(numbers), BLOCK_ROWS))):
            rows = _rows(part, at)
            writer.write(rows)
            if entries is not None:
                entries.add(rows.column("key"))
        file = writer.finish()
    assert file is not None
    if entries is not None:
        keep_index(store_at(location, DISK), file.name, entries)
    return file


def _rows(numbers: Indices, first: int) -> pa.Table:
    offsets = np.arange(first, first + len(numbers))
    digits = numbers[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64) % 10 + ord("0")
    values = np.random.default_rng(first).integers(0, 256, (len(numbers), VALUE_BYTES), np.uint8)
    given: dict[str, Column] = {
        "partition": pa.array(np.zeros(len(numbers), np.int32)),
        "offset": pa.array(offsets),
        "timestamp": pa.array(MICROSECONDS + offsets),
        "key": _binary(digits.astype(np.uint8)),
        "value": _binary(values),
    }
    columns = [
        given[field.name].cast(field.type) if field.name in given else nulls_of(field.type, len(numbers))
        for field in ENVELOPE_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=ENVELOPE_SCHEMA)


def _binary(values: np.typing.NDArray[np.uint8]) -> Column:
    bounds = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(values.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


if __name__ == "__main__":
    place, size, what, tasks = sys.argv[1:]
    sys.stdout.write(json.dumps(_upsert(place, int(size), "random" if what == "random" else "recent", int(tasks))))
