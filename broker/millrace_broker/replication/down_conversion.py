"""Converts batches to message sets for clients of Fetch v0 to v3 (KIP-283; docs/formats/message-set.md).

    v0, v1     messages of format v0
    v2, v3     messages of format v1

These formats do not know zstd. A client gets the records before the first batch in zstd, and
UNSUPPORTED_COMPRESSION_TYPE where there are none. Where `message.downconversion.enable` is false the error is
UNSUPPORTED_VERSION. A client of v0 to v2 that asks for fewer bytes than the first batch has gets nothing, as from
Kafka; v3 gives the whole batch (KIP-74).

Conversion takes long, so one worker thread does it for all requests, which bounds its memory too. It goes batch by
batch, and ends where a partition would have more bytes than were asked for, or the answer more than it may have. One
batch at a time is decompressed, of at most `OPENED_LIMIT_BYTES`; a larger one is answered MESSAGE_TOO_LARGE.
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
from millrace.wire.fetch import FetchPartition, PartitionFetched, PartitionKey
from millrace_broker.replication.fetch_sessions import Fetched
from millrace_broker.storage import LogConfig

FIRST_VERSION_OF_FORMAT_V1 = 2
FIRST_VERSION_WITH_WHOLE_BATCH = 3
FIRST_VERSION_OF_BATCHES = 4
FIRST_VERSION_WITH_ZSTD = 10
LAST_VERSION_WITHOUT_STORAGE_ERROR = 5
ZSTD = "zstd"
OPENED_LIMIT_BYTES = 64 << 20

_worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="down-conversion")


def converted_soon(
    version: int, fetched: Fetched, wanted: Mapping[PartitionKey, FetchPartition], max_bytes: int
) -> asyncio.Future[Fetched]:
    """Runs `all_converted` on the worker thread; returns a future, which can be cancelled before it has begun."""
    return asyncio.get_running_loop().run_in_executor(_worker, all_converted, version, fetched, wanted, max_bytes)


def all_converted(
    version: int, fetched: Fetched, wanted: Mapping[PartitionKey, FetchPartition], max_bytes: int
) -> Fetched:
    """Converts the batches read for a Fetch request below v4 to message sets; `wanted` is what the client asked for.

    Each partition gets at most its `max_bytes`, or one batch. Once the answer has `max_bytes`, the others get no
    records.
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


def converted(version: int, fetched: PartitionFetched, wanted: FetchPartition) -> PartitionFetched:
    """Returns a partition's response with its batches converted to a message set, or with an error if that fails."""
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


def for_old_client(version: int, fetched: PartitionFetched, config: LogConfig | None) -> PartitionFetched:
    """Returns a partition's response as a client below v10 can read it, or with an error that it knows.

    `config` is that of the partition's log, None where there is no such partition.
    """
    if fetched.error_code:
        hides = fetched.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        if hides and version <= LAST_VERSION_WITHOUT_STORAGE_ERROR:
            return fetched._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return fetched
    if config is None:
        return fetched
    if config.compression_type == ZSTD:
        return without_records(fetched, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if version < FIRST_VERSION_OF_BATCHES and not config.message_downconversion_enable:
        return without_records(fetched, ErrorCode.UNSUPPORTED_VERSION)
    return fetched


def without_records(fetched: PartitionFetched, code: ErrorCode) -> PartitionFetched:
    """Returns a partition's answer with an error and no records."""
    return PartitionFetched(fetched.partition_index, code, -1, -1, -1, b"")


def _before_zstd(batches: memoryview) -> int:
    """Returns the position of the first batch compressed with zstd; the end of the bytes without one."""
    return next((position for position, header in walk(batches) if header.codec_id == Codec.ZSTD), len(batches))
