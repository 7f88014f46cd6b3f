"""Opens message sets of v0 and v1 for Arrow columns, and decodes them where there is no compiled kernel.

set ──► body: neighbours without a codec as they lie there, wrapper = None
└─► body: what a wrapper holds, decompressed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.records.arrow_columns import has_no_time, no_headers, record_batch, times_of
from millrace.records.batch import CODEC_MASK, Buffer
from millrace.records.message_set import (
    ATTRIBUTES_POSITION,
    Message,
    inner_records,
    read_message,
    unwrap,
    walk_entries,
    walk_messages,
)
from millrace.records.record import Record


class MessageBody(NamedTuple):
    """The bytes of whole uncompressed messages, and the compressed wrapper message that held them, or None."""

    wrapper: Message | None
    data: Buffer


def message_bodies(message_set: Buffer) -> Iterator[MessageBody]:
    """Yields the messages of a set in order, wrappers decompressed; an incomplete message at the end is left out.

    The CRC of a wrapper is checked here, that of other messages when they are decoded. Raises RecordError for
    messages that can't be read, and for a wrapper that holds more than the codecs' limit.
    """
    view = memoryview(message_set)
    begin = end = 0
    for position, entry in walk_entries(view):
        if entry[ATTRIBUTES_POSITION] & CODEC_MASK:
            if end > begin:
                yield MessageBody(None, view[begin:end])
            wrapper = read_message(entry, position)
            yield MessageBody(wrapper, unwrap(wrapper))
            begin = position + len(entry)
        end = position + len(entry)
    if end > begin:
        yield MessageBody(None, view[begin:end])


def decode_message_block(bodies: Sequence[MessageBody], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns those records of the messages, 2 GiB at most, whose offsets are in the range; raises RecordError."""
    records = [record for body in bodies for record in _records(body) if from_offset <= record.offset < until_offset]
    milliseconds = np.array([record.timestamp_ms for record in records], np.int64)
    return record_batch(
        pa.array([record.offset for record in records], pa.int64()),
        times_of(milliseconds, has_no_time(milliseconds)),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        no_headers(len(records)),
    )


def _records(body: MessageBody) -> list[Record]:
    if body.wrapper is not None:
        return inner_records(body.wrapper, body.data)
    messages = (message for _, message in walk_messages(body.data))
    return [Record(message.offset, message.timestamp_ms, message.key, message.value) for message in messages]
