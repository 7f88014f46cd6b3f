"""The 64-bit hash of a key, many keys at once: SipHash-2-4, keyed by a salt of the table.

A hash says nothing of its key to somebody without the salt. With the salt, which is made of the table's id and so is
no secret, a key that is guessed can be checked against it. That is why hashes live and go with the rows that they are
of (`keys.key_index`).

The hash is computed by NumPy for BLOCK_KEYS keys of one length at a time. A key longer than LONG_BYTES stands for
itself by its BLAKE2b digest.

Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", 2012.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace_pipelines.arrow import Octets, binaries, data_of, octets_of, offsets_of

SALT_BYTES = 16
LONG_BYTES = 128
BLOCK_KEYS = 1 << 14
WORD_BYTES = 8
INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)

Hashes: TypeAlias = npt.NDArray[np.uint64]


def salt_of(table_id: str) -> bytes:
    """Returns the salt of the table with an id."""
    return hashlib.blake2b(table_id.encode(), digest_size=SALT_BYTES, person=b"millrace keys").digest()


def hashes_of(keys: pa.BinaryArray, salt: bytes) -> Hashes:
    """Returns the hashes of keys; that of a null key says nothing."""
    found = np.zeros(len(keys), np.uint64)
    keys = _shortened(keys)
    octets, bounds = octets_of(data_of(keys)), offsets_of(keys)
    begins, lengths = bounds[:-1].astype(np.int64), np.diff(bounds)
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        for first in range(0, len(numbers), BLOCK_KEYS):
            block = numbers[first : first + BLOCK_KEYS]
            found[block] = _siphash(_words(octets, begins[block], int(length)), salt)
    return found


def _shortened(keys: pa.BinaryArray) -> pa.BinaryArray:
    if not np.any(np.diff(offsets_of(keys)) > LONG_BYTES):
        return keys
    values = (value if value is None or len(value) <= LONG_BYTES else hashlib.blake2b(value).digest()
              for value in keys.to_pylist())  # fmt: skip
    return binaries(pa.array(values, pa.binary(), size=len(keys)))


def _words(octets: Octets, begins: npt.NDArray[np.int64], length: int) -> Hashes:
    """Returns the words that SipHash takes of each key, a row for each word: the bytes, zeros, and the length."""
    words = length // WORD_BYTES + 1
    padded = np.zeros((len(begins), words * WORD_BYTES), np.uint8)
    padded[:, :length] = octets[begins[:, None] + np.arange(length)]
    padded[:, -1] = length % 256
    return np.ascontiguousarray(padded.view("<u8").T)


def _siphash(words: Hashes, salt: bytes) -> Hashes:
    halves = np.frombuffer(salt, "<u8")
    lanes = [np.full(words.shape[1], halves[lane % 2] ^ np.uint64(INITIAL[lane])) for lane in range(4)]
    for word in words:
        lanes[3] ^= word
        _mix(lanes, 2)
        lanes[0] ^= word
    lanes[2] ^= np.uint64(0xFF)
    _mix(lanes, 4)
    hashed: Hashes = lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3]
    return hashed


def _mix(lanes: list[Hashes], rounds: int) -> None:
    a, b, c, d = lanes
    for _ in range(rounds):
        a += b
        c += d
        _rotate(b, 13)
        _rotate(d, 16)
        b ^= a
        d ^= c
        _rotate(a, 32)
        c += b
        a += d
        _rotate(b, 17)
        _rotate(d, 21)
        b ^= c
        d ^= a
        _rotate(c, 32)


def _rotate(lane: Hashes, bits: int) -> None:
    right = lane >> np.uint64(64 - bits)
    lane <<= np.uint64(bits)
    lane |= right
