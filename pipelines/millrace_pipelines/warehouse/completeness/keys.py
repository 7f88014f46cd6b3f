"""Whether a table of newest records (upsert) has a key twice, in bounded memory.

Keys are held as 64-bit hashes, at most about KEYS_PER_PASS in each pass; only keys whose hash is there twice are
compared themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from millrace_pipelines.arrow import values_of
from millrace_pipelines.warehouse.completeness.contents import Contents

KEYS_PER_PASS = 8 << 20
KEY = "key"


def repeated_keys(contents: Contents, keys_per_pass: int = KEYS_PER_PASS) -> list[bytes]:
    """Returns the keys that more than one row of the table has, as far as they can be read."""
    passes = max(1, -(-contents.rows // keys_per_pass))
    repeated: list[bytes] = []
    for number in range(passes):
        suspects = _repeated_hashes(contents, number, passes)
        if len(suspects):
            wanted = set(suspects.tolist())
            counts = Counter(key for keys in _keys(contents) for key in keys if xxh3_64_intdigest(key) in wanted)
            repeated += [key for key, count in counts.items() if count > 1]
    return sorted(repeated)


def _repeated_hashes(contents: Contents, number: int, passes: int) -> npt.NDArray[np.uint64]:
    parts = [np.zeros(0, np.uint64)]
    for keys in _keys(contents):
        hashes = np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))
        parts.append(hashes[hashes % np.uint64(passes) == number])
    hashes = np.sort(np.concatenate(parts))
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _keys(contents: Contents) -> Iterator[list[bytes]]:
    for group in contents.row_groups:
        rows = contents.columns_of(group, [KEY])
        if rows is not None:
            yield values_of(rows.column(KEY).drop_null())
