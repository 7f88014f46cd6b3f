"""Records for clients of Fetch v0 to v3, which know no batches (spec A5, KIP-283).

    v0, v1     messages of format v0
    v2, v3     messages of format v1

Batches in zstd have no place in these formats: what comes before the first one is given, and where nothing does, the
error is UNSUPPORTED_COMPRESSION_TYPE. `message.downconversion.enable=false` answers UNSUPPORTED_VERSION. A client of v0
to v2 that asks for fewer bytes than the first batch has gets nothing, as from Kafka; v3 gives the batch whole (KIP-74).

Conversion is long work, so it belongs to a worker thread: one for all requests, so that what it takes of memory is
taken once. It goes batch by batch, and ends where a partition would have more bytes than were asked for, or the
answer more than it may have; at most one batch is opened, of `OPENED_LIMIT_BYTES` (MESSAGE_TOO_LARGE above).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from millrace.errors import ErrorCode, RecordError, StorageError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.convert import down_convert
from millrace.wire.encoder import contents
from millrace.wire.fetch import PartitionFetched
from millrace.wire.fetch_request import PartitionKey, Wanted
from millrace_broker.replication.fetch_sessions import Fetched

FIRST_VERSION_OF_FORMAT_V1 = 2
FIRST_VERSION_WITH_WHOLE_BATCH = 3
FIRST_VERSION_OF_BATCHES = 4
OPENED_LIMIT_BYTES = 64 << 20

_worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="down-conversion")


def converted_soon(
    version: int, fetched: Fetched, wanted: Mapping[PartitionKey, Wanted], max_bytes: int
) -> asyncio.Future[Fetched]:
    """`all_converted` by the worker; what has not begun is dropped with its future."""
    return asyncio.get_running_loop().run_in_executor(_worker, all_converted, version, fetched, wanted, max_bytes)


def all_converted(version: int, fetched: Fetched, wanted: Mapping[PartitionKey, Wanted], max_bytes: int) -> Fetched:
    """All that was fetched, in the format of a Fetch version below 4; `wanted` is what the client asked for.

    No partition has more than its bytes or one batch. Those behind `max_bytes` of all are told of without records.
    """
    done: list[tuple[PartitionKey, PartitionFetched]] = []
    left_bytes = max_bytes
    for key, one in fetched:
        if left_bytes <= 0 and left_bytes != max_bytes:
            done.append((key, one._replace(records=b"")))
            continue
        asked = wanted[key]._replace(max_bytes=min(wanted[key].max_bytes, left_bytes))
        done.append((key, converted(version, one, asked)))
        left_bytes -= len(done[-1][1].records)
    return done


def converted(version: int, fetched: PartitionFetched, wanted: Wanted) -> PartitionFetched:
    """What was fetched of one partition; errors are the partition's."""
    if not len(fetched.records):
        return fetched
    magic = 1 if version >= FIRST_VERSION_OF_FORMAT_V1 else 0
    try:
        view = memoryview(contents(fetched.records))
        end = _before_zstd(view)
        records = down_convert(
            view[:end],
            magic,
            from_offset=wanted.fetch_offset,
            max_bytes=wanted.max_bytes,
            limit_bytes=max(OPENED_LIMIT_BYTES, len(view)),
        )
    except (RecordError, StorageError) as error:
        return without_records(fetched, error.code)
    if end == 0:
        return without_records(fetched, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return fetched._replace(records=records)


def without_records(fetched: PartitionFetched, code: ErrorCode) -> PartitionFetched:
    """The answer of a partition that can't be told of."""
    return PartitionFetched(fetched.partition_index, code, -1, -1, -1, b"")


def _before_zstd(batches: memoryview) -> int:
    """Where the first batch in zstd begins; all of them where none is."""
    return next((position for position, header in walk(batches) if header.codec_id == Codec.ZSTD), len(batches))
