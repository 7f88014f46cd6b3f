"""Whether a table of newest records (upsert) has a key twice, in bounded memory.

Keys are held as 64-bit hashes, so many of them in each of several passes; only keys whose hash is there twice are
compared themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from xxhash import xxh3_64_intdigest

from millrace_pipelines.warehouse.table import Table

KEYS_PER_PASS = 8 << 20
BATCH_ROWS = 1 << 16


def repeated_keys(table: Table, rows: int, keys_per_pass: int = KEYS_PER_PASS) -> list[bytes]:
    """The keys that more than one row of the table has."""
    passes = max(1, -(-rows // keys_per_pass))
    repeated: list[bytes] = []
    for number in range(passes):
        suspects = _repeated_hashes(table, number, passes)
        if len(suspects):
            wanted = set(suspects.tolist())
            counts = Counter(key for keys in _keys(table) for key in keys if xxh3_64_intdigest(key) in wanted)
            repeated += [key for key, count in counts.items() if count > 1]
    return sorted(repeated)


def _repeated_hashes(table: Table, number: int, passes: int) -> npt.NDArray[np.uint64]:
    parts = [np.zeros(0, np.uint64)]
    for keys in _keys(table):
        hashes = np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))
        parts.append(hashes[hashes % np.uint64(passes) == number])
    hashes = np.sort(np.concatenate(parts))
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _keys(table: Table) -> Iterator[list[bytes]]:
    for path in table.files():
        with pq.ParquetFile(path, filesystem=table.filesystem) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=["key"]):
                keys: Any = batch.column(0).drop_null()
                yield keys.to_pylist()
