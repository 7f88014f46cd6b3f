"""Decides what a follower that is far behind fetches next, while it still writes what it has fetched.

    leader's log    [ committed .................................. | high watermark ... ]
    got, to be written        [ A ]
    asked for meanwhile            [ B ]

So leader and follower work at the same time. But a fetch also tells the leader where the follower's log ends, and the
leader commits by that. So a follower asks ahead only for what lies below the high watermark: those offsets are
committed already, whoever has them, and a follower that ends below the high watermark can't join the ISR.

The answer to a request that was sent ahead counts only if the log then ends where that request said: the caller
compares the position that it asked for with the one that it would ask for now.

The functions are pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from millrace.errors import ErrorCode, RecordError
from millrace.fs import Buffer
from millrace.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, read_header
from millrace.wire.encoder import contents
from millrace.wire.fetch import PartitionFetched
from millrace.wire.fetch_request import PartitionKey
from millrace_broker.replication.follower_session import Asked

BATCH_LENGTH = struct.Struct(">8xi")


def asked_ahead(
    asked: Mapping[PartitionKey, Asked], fetched: Mapping[PartitionKey, PartitionFetched]
) -> dict[PartitionKey, Asked]:
    """Returns what to ask for behind the records of an answer, which are not written yet; nothing where that must wait.

    Nothing is asked ahead for any partition if one partition of the answer has an error, a diverging epoch, or records
    up to its high watermark: the request would name a position of that partition that is about to change.
    """
    ahead: dict[PartitionKey, Asked] = {}
    for key, one in fetched.items():
        if one.error_code != ErrorCode.NONE or one.diverging_epoch is not None:
            return {}
        if len(one.records):
            if asked[key].fetch_offset >= one.high_watermark:  # a follower in sync: its batches need no walk
                return {}
            last = last_whole_batch(contents(one.records))
            if last is None or last.next_offset >= one.high_watermark:
                return {}
            epoch = max(last.partition_leader_epoch, asked[key].last_fetched_epoch)
            ahead[key] = asked[key]._replace(fetch_offset=last.next_offset, last_fetched_epoch=epoch)
    return ahead


def last_whole_batch(records: Buffer) -> BatchHeader | None:
    """Returns the header of the last batch that is whole; None for bytes that are no batches. Nothing is validated."""
    last, position, end = 0, 0, len(records)
    while end - position >= HEADER_BYTES:
        (length,) = BATCH_LENGTH.unpack_from(records, position)
        after = position + LOG_OVERHEAD_BYTES + length
        if after > end or after <= position:
            break
        last, position = position, after
    if position - last < HEADER_BYTES:
        return None
    try:
        return read_header(records, last)
    except RecordError:  # the append reports it
        return None
