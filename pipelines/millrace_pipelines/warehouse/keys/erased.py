"""What the history remembers of erased keys: enough to recognize them, not the keys.

    {"kind": "erase", "salt": <hex>, "keys": [<salted hash>, …], "below": {<partition>: <next offset>, …}, …}

A hash is BLAKE2b of the key, keyed by the table's own random salt, which its first erasure draws. With it a reload
leaves the records of an erased key out, up to the offsets that the table had when it was erased. The salt is no secret:
someone who has the table and guesses a key can check whether that key was erased, and learns nothing else.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millrace_pipelines.warehouse.delta.lineage import Lineage

ERASE = "erase"
SALT_BYTES = 16
HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class ErasedKeys:
    """The erased keys of one table: by salted hash, the offset of each partition below which they are erased."""

    salt: bytes
    below: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, lineage: Iterable[Lineage]) -> ErasedKeys:
        """Reads a table's history, oldest first; draws a new salt where nothing was erased yet."""
        salt = None
        below: dict[str, dict[int, int]] = {}
        for entry in lineage:
            if entry.get("kind") == ERASE:
                salt = bytes.fromhex(entry["salt"])
                offsets = {int(partition): offset for partition, offset in entry["below"].items()}
                below |= {key: below.get(key, {}) | offsets for key in entry["keys"]}
        return cls(salt or secrets.token_bytes(SALT_BYTES), below)

    def hash_of(self, key: bytes) -> str:
        """Returns a key's name in the history."""
        return hashlib.blake2b(key, key=self.salt, digest_size=HASH_BYTES).hexdigest()

    def is_erased(self, rows: pa.Table) -> np.typing.NDArray[np.bool_]:
        """Returns for each row whether its key was erased when the table had its offset."""
        if not self.below:
            return np.zeros(rows.num_rows, np.bool_)
        columns = (rows.column(name).to_pylist() for name in ("key", "partition", "offset"))
        return np.fromiter((self._has(*place) for place in zip(*columns, strict=True)), np.bool_, rows.num_rows)

    def _has(self, key: bytes | None, partition: int, offset: int) -> bool:
        return key is not None and offset < self.below.get(self.hash_of(key), {}).get(partition, 0)
