"""Records of one Avro schema, one behind the other: where each is read next, and its first flaw.

    data    │ record 0 │ record 1 │ …          bytes of a binary column
    at          ^          ^                   the next byte of each record
    ends               ^          ^            the byte after each record

A field is read for all records at once. A record that is cut short, or otherwise wrong, is marked with its first flaw
and stays at its end; what is read of it is dropped later. No record is read beyond its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace_pipelines.arrow import Flags, Indices, Octets, data_of, octets_of, offsets_of, slices
from millrace_pipelines.warehouse.payload.outcome import Reason, Refusal

Integers = npt.NDArray[np.int64]
MAX_SHIFT = 63


class Block:
    """The Avro records of a binary array without nulls, which are read field by field, all records in step."""

    def __init__(self, values: pa.BinaryArray) -> None:
        bounds = offsets_of(values)
        self._buffer = data_of(values)
        self._data = octets_of(self._buffer)
        self.at: Integers = bounds[:-1].astype(np.int64)
        self.ends: Integers = bounds[1:].astype(np.int64)
        self.failed: Flags = np.zeros(len(values), np.bool_)
        self._flaws: dict[int, tuple[Reason, str]] = {}

    def __len__(self) -> int:
        return len(self.at)

    def fail(self, rows: Indices, wrong: Flags, reason: Reason, message: str) -> None:
        """Marks those of `rows` for which `wrong` is true as failed, unless they failed before."""
        for row in rows[wrong & ~self.failed[rows]].tolist():
            self._flaws[row] = (reason, message)
        self.failed[rows[wrong]] = True
        self.at[rows[wrong]] = self.ends[rows[wrong]]

    def finish(self) -> Iterator[Refusal]:
        """Marks the records that have bytes left as failed, and yields a refusal for each failed record."""
        self.fail(np.arange(len(self)), self.at != self.ends, Reason.MALFORMED, "bytes after the record's end")
        for row, (reason, message) in self._flaws.items():
            yield Refusal(row, reason, message)

    def varints(self, rows: Indices, path: str) -> Integers:
        """Reads a zig-zag integer from each of these rows."""
        at = self.at[rows]
        octet = self._octets(at)
        zigzag = (octet & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(octet >= 0x80)
        shift = 7
        while more.size:
            octet = self._octets(at[more])
            if shift == MAX_SHIFT:
                self.fail(rows[more], octet > 1, Reason.MALFORMED, f"field {path}: an integer is longer than 64 bits")
            zigzag[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            shift += 7
            more = more[octet >= 0x80] if shift <= MAX_SHIFT else more[:0]
        self._moved(rows, at, path)
        return (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64)

    def fixed(self, rows: Indices, width: int, path: str) -> Octets:
        """Reads `width` bytes from each of these rows; returns them as a matrix with a line for each row."""
        at = self.at[rows]
        octets: Octets = self._data[np.minimum(at[:, None] + np.arange(width), self._data.size - 1)]
        self._moved(rows, at + width, path)
        return octets

    def binary(self, rows: Indices, path: str) -> pa.BinaryArray:
        """Reads a length and that many bytes from each of these rows, which must ascend, as a binary column."""
        lengths = self.varints(rows, path)
        begins = self.at[rows]
        wrong = (lengths < 0) | (lengths > self.ends[rows] - begins)
        self.fail(rows, wrong, Reason.MALFORMED, f"field {path}: cut short")
        begins = self.at[rows]
        ends = begins + np.where(self.failed[rows], 0, lengths)
        self.at[rows] = ends
        return slices(self._buffer, begins, ends)

    def _octets(self, at: Integers) -> Octets:
        octets: Octets = self._data[np.minimum(at, self._data.size - 1)]
        return octets

    def _moved(self, rows: Indices, at: Integers, path: str) -> None:
        ends = self.ends[rows]
        self.at[rows] = np.minimum(at, ends)
        beyond = at > ends
        if bool(beyond.any()):
            self.fail(rows, beyond, Reason.MALFORMED, f"field {path}: cut short")
        if self._flaws:
            self.at[rows] = np.where(self.failed[rows], ends, self.at[rows])
