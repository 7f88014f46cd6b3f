"""Records for clients of Fetch v0 to v3, which know no batches (spec A5, KIP-283).

    v0, v1     messages of format v0
    v2, v3     messages of format v1

Batches in zstd have no place in these formats: what comes before the first one is given, and where nothing does, the
error is UNSUPPORTED_COMPRESSION_TYPE. `message.downconversion.enable=false` answers UNSUPPORTED_VERSION. A client of v0
to v2 that asks for fewer bytes than the first batch has gets nothing, as from Kafka; v3 gives the batch whole (KIP-74).

Conversion is long work, so it belongs to a worker thread.
"""

from __future__ import annotations

from millrace.errors import ErrorCode, RecordError, StorageError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.convert import down_convert
from millrace.wire.encoder import contents
from millrace.wire.fetch import PartitionFetched

FIRST_VERSION_OF_FORMAT_V1 = 2
FIRST_VERSION_WITH_WHOLE_BATCH = 3
FIRST_VERSION_OF_BATCHES = 4


def converted(version: int, fetched: PartitionFetched, fetch_offset: int) -> PartitionFetched:
    """What was fetched, in the format of a Fetch version below 4; errors are the partition's."""
    if not len(fetched.records):
        return fetched
    magic = 1 if version >= FIRST_VERSION_OF_FORMAT_V1 else 0
    try:
        view = memoryview(contents(fetched.records))
        end = _before_zstd(view)
        records = down_convert(view[:end], magic, from_offset=fetch_offset)
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
