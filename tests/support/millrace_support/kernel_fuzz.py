"""Compares the compiled kernel with its Python path: `python -m millrace_support.kernel_fuzz ROUNDS SEED`.

Both must accept the same hostile buffers, give the same columns for them, and refuse the others with the same class of
error. JSON has no other path here: the kernel must treat values that come together as it treats each alone. This is a
program, so that it can run with a kernel compiled for AddressSanitizer.
"""

from __future__ import annotations

import json
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c as packaged_crc32c

from millrace import kernel
from millrace.config import MAX_LONG
from millrace.errors import MalformedRequestError, RecordError, SetupError
from millrace.records.arrow import COMPILED, MAX_OFFSET, PLAIN, BlockDecoders, decode_to_arrow
from millrace.records.batch import BatchHeader, walk
from millrace.records.checksum import crc32c
from millrace.records.record import (
    Record,
    decode_body,
    decompress_body,
    encode_bodies,
    encode_bodies_plainly,
    records_of,
)
from millrace.records.record_check import MIN_LONG, PlainRecordCheck, RecordCheck, RecordRules, Refused
from millrace.wire.header import FIRST_FLEXIBLE, read_any_request_header
from millrace_support.hostile_json import FIELDS, HostileJson
from millrace_support.hostile_records import HostileRecords

Outcome = tuple[str, Sequence[pa.RecordBatch]]
DECODED = "decoded"
PLAIN_JSON = "plain JSON"
JSON_VALUES = 4
LARGEST_TIME = 2**63
HALF = 0.5


class DisagreementError(AssertionError):
    """The two paths differ; the message has the bytes."""


def outcome(buffer: bytes, decoders: BlockDecoders, from_offset: int, until_offset: int) -> Outcome:
    """Decodes a buffer and returns its record batches, or the name of the error."""
    decoded = decode_to_arrow(buffer, from_offset=from_offset, until_offset=until_offset, decoders=decoders)
    try:
        return DECODED, list(decoded)
    except RecordError as error:
        return type(error).__name__, []


def compare(buffer: bytes, from_offset: int, until_offset: int) -> str:
    """Returns how both paths ended; raises DisagreementError if they differ."""
    compiled = outcome(buffer, COMPILED, from_offset, until_offset)
    plain = outcome(buffer, PLAIN, from_offset, until_offset)
    for batch in compiled[1]:
        batch.validate(full=True)
    if compiled != plain:
        raise DisagreementError(
            f"{compiled[0]} and {plain[0]} from {from_offset} until {until_offset} of {buffer.hex()}"
        )
    return compiled[0]


def compare_records(batch: bytes) -> None:
    """Compares a batch's records as Python objects, and the bytes that they encode to; raises DisagreementError."""
    try:
        ((_, header),) = walk(batch)
        body = decompress_body(header, memoryview(batch))
    except (RecordError, ValueError):
        return
    compiled, plain = (_records(decode, header, body) for decode in (records_of, decode_body))
    if compiled != plain:
        raise DisagreementError(f"{compiled} and {plain} of {batch.hex()}")
    placed = [(record.offset - header.base_offset, record) for record in plain if isinstance(record, Record)]
    if any(abs(record.timestamp_ms) >= LARGEST_TIME for _, record in placed):
        return
    if encode_bodies(placed, 0) != encode_bodies_plainly(placed, 0):
        raise DisagreementError(f"records encoded of {batch.hex()}")


def compare_checks(batch: bytes, chance: Random) -> None:
    """Compares the checks of a batch's records, which are fed in two chunks; raises DisagreementError."""
    try:
        ((_, header),) = walk(batch)
        body = decompress_body(header, memoryview(batch))
    except (RecordError, ValueError):
        return
    rules = RecordRules(chance.random() < HALF, chance.choice((MIN_LONG, 0)), chance.choice((MAX_LONG, 2**41)))
    place = chance.randrange(len(body) + 1)
    compiled, plain = (
        _checked(made(header.record_count, header.base_timestamp, *rules), body[:place], body[place:])
        for made in (kernel.native.RecordCheck, PlainRecordCheck)
    )
    if compiled != plain:
        raise DisagreementError(f"{compiled} and {plain} of {batch.hex()}, cut at {place}")
    if hasattr(kernel.native, "is_valid_batch"):
        kernel.native.is_valid_batch(batch)


def _checked(check: RecordCheck, *chunks: bytes) -> tuple[int, Refused] | str:
    try:
        for chunk in chunks:
            check.feed(chunk)
        return check.end()
    except RecordError as error:
        return str(error)


def compare_crc(buffer: bytes, chance: Random) -> None:
    """Compares the CRC-32C from a random position on, with a random initial value; raises DisagreementError."""
    rest, value = memoryview(buffer)[chance.randrange(len(buffer) + 1) :], chance.getrandbits(32)
    if crc32c(rest, value) != packaged_crc32c(rest, value):
        raise DisagreementError(f"CRC-32C, taken on from {value:#010x}, of {rest.hex()}")


def compare_request_header(frame: bytes, chance: Random) -> None:
    """Compares the header of a request whose bytes are nearly as a client sends them; raises DisagreementError."""
    start = struct.pack(">hhih", chance.randrange(-1, 100), chance.randrange(20), 5, chance.randrange(-2, 9))
    begun = memoryview(start + frame)[: chance.randrange(60)]
    compiled, plain = kernel.native.request_header(begun, FIRST_FLEXIBLE), None
    with suppress(MalformedRequestError):
        plain = read_any_request_header(begun)
    if compiled not in {None, plain}:
        raise DisagreementError(f"{compiled} and {plain} of {begun.hex()}")


def _records(decode: Callable[[BatchHeader, bytes], Iterable[Record]], header: BatchHeader, body: bytes) -> list[Any]:
    try:
        return list(decode(header, body))
    except RecordError as error:
        return [type(error)]


def compare_json(values: Sequence[bytes]) -> int:
    """Returns how many values the kernel reads; raises DisagreementError if it reads others when each is alone."""
    together = _not_plain(values)
    alone = [place for place, value in enumerate(values) if _not_plain([value])]
    if together != alone:
        raise DisagreementError(f"{together} and {alone} of {values}")
    return len(values) - len(together)


def _not_plain(values: Sequence[bytes]) -> list[int]:
    """Returns the indexes of the values that the kernel does not read; the last value ends its block of memory."""
    bounds = np.cumsum([0, *map(len, values)], dtype=np.int32)
    data = np.array(bytearray(b"".join(values)))
    _, left, _ = kernel.native.read_json(bounds.data, data.data, FIELDS)
    return memoryview(left).cast("q").tolist()


def fuzz(rounds: int, seed: int) -> Counter[str]:
    """Returns how many buffers ended in each way; raises SetupError without a compiled kernel."""
    if kernel.native is None:
        raise SetupError(f"there is no compiled kernel to try: {kernel.description}")
    chance = Random(seed)  # noqa: S311  # test data
    hostile, hostile_json = HostileRecords(chance), HostileJson(chance)
    ends: Counter[str] = Counter()
    for _ in range(rounds):
        from_offset, until_offset = chance.choice(((0, MAX_OFFSET), (0, MAX_OFFSET), (2, MAX_OFFSET), (105, 110)))
        buffer = hostile.buffer()
        ends[compare(buffer, from_offset, until_offset)] += 1
        compare_crc(buffer, chance)
        compare_request_header(buffer, chance)
        compare_records(hostile.batch())
        compare_checks(hostile.batch(), chance)
        ends[PLAIN_JSON] += compare_json(hostile_json.values(JSON_VALUES))
    return ends


if __name__ == "__main__":
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201  # a program's answer
