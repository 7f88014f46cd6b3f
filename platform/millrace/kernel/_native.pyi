# The compiled kernel (module.c).

from typing import Self, TypeAlias, TypeVar

_Record = TypeVar("_Record", bound=tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]])

VERSION: int

# Memory that C filled: a read-only buffer.
class Memory:
    def __buffer__(self, flags: int, /) -> memoryview: ...

Octets: TypeAlias = bytes | bytearray | memoryview

# The record bytes of a batch, decompressed; base offset, last offset delta, base timestamp, record count; whether that
# timestamp is every record's.
Batch: TypeAlias = tuple[Octets, int, int, int, int, bool]

# Whole entries without a codec. The magic is that of the wrapper that they were in, -1 if in none; offset, timestamp
# and whether that is every message's are the wrapper's too.
MessageSet: TypeAlias = tuple[Octets, int, int, int, bool]

Validity: TypeAlias = Memory | None  # None: there are no nulls
# Nulls, validity, microseconds; in the place of a null the record's milliseconds.
Timestamps: TypeAlias = tuple[int, Validity, Memory]
Binary: TypeAlias = tuple[int, Validity, Memory, Memory]  # nulls, validity, offsets, data
Headers: TypeAlias = tuple[int, Memory, Binary, Binary]  # how many, where those of a row begin, keys as bytes, values
Columns: TypeAlias = tuple[int, Memory, Timestamps, Binary, Binary, Headers]  # rows, offsets, …, keys, values, headers

# Records with from_offset <= offset < until_offset as the buffers of Arrow columns; all are checked. RecordError for
# bytes that are no records, ValueError for more than 2 GiB of them.
def decode_batches(batches: list[Batch], from_offset: int, until_offset: int, /) -> Columns: ...
def decode_message_sets(message_sets: list[MessageSet], from_offset: int, until_offset: int, /) -> Columns: ...

# The records of a batch as tuples of a type: offset, timestamp, key, value, headers. CorruptRecordError.
def read_records(batch: Batch, record_type: type[_Record], /) -> list[_Record]: ...

# Offset delta, timestamp delta, key, value, headers.
PlacedRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

# The bytes of records in a batch.
def write_records(records: list[PlacedRecord], /) -> bytes: ...

# CRC-32C, taken on from that of what came before. Only where the processor has VPCLMULQDQ and AVX-512.
def crc32c(data: Octets, value: int = 0, /) -> int: ...

# A declared field of JSON objects: name, type (`payload.json.decoder` has their letters), whether it may not lack.
JsonField: TypeAlias = tuple[bytes, str, bool]
JsonColumn: TypeAlias = tuple[int, Validity, Memory | None, Memory]  # nulls, validity, offsets of texts, data

# Columns of those values that are plain JSON objects: how many, the places (64 bits each) of all other values, columns.
# Values are given by their bounds in the data, 32 bits each. ValueError for bounds outside of it.
def read_json(
    bounds: Octets, data: Octets, fields: tuple[JsonField, ...], /
) -> tuple[int, Memory, list[JsonColumn]]: ...

# Whether the bytes are one batch, without a codec, that a leader has nothing to object to. Only where `crc32c` is.
def is_valid_batch(batch: Octets, /) -> bool: ...

# A check of a batch's records, which are fed in chunks cut anywhere: record count, base timestamp, whether every record
# needs a key, earliest and latest timestamp. InvalidRecordError for bytes that are not these records.
class RecordCheck:
    def __new__(
        cls, record_count: int, base_timestamp: int, needs_keys: bool, earliest: int, latest: int, /
    ) -> Self: ...
    def feed(self, chunk: Octets, /) -> None: ...
    # The largest timestamp, and the indexes of refused records, each with its timestamp or None for no key.
    def end(self) -> tuple[int, list[tuple[int, int | None]]]: ...

# The same of records that lie in one piece between two positions: record count, base timestamp; no rule for keys and
# times. Returns the largest timestamp.
def check_records(data: Octets, begin: int, end: int, record_count: int, base_timestamp: int, /) -> int: ...

# API key, API version, correlation id, client id, where the body begins, the frame's size; None for a header that is
# left to Python. The second argument has each API's first flexible version, 255 for none.
def request_header(frame: Octets, first_flexible: bytes, /) -> tuple[int, int, int, str | None, int, int] | None: ...
