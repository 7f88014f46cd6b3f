"""What users choose of a table: its format, how it takes records, and how its data files are compressed.

Files are compressed fast where a load waits for it, small where they stay:

    written by              without a choice of the table's     millrace.compression = <codec>
    loads, upserts          lz4                                 <codec>
    compaction, erasure,    zstd                                <codec>
    reloads' other rows,
    widened columns

Every file names its own codec, so files of several lie in one table, and a choice holds from the next file on. `lz4` is
Parquet's LZ4_RAW, one block for each page, without the frame that its older, ambiguous LZ4 had
(https://github.com/apache/parquet-format/blob/master/Compression.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from millrace.errors import WarehouseError


class Mode(StrEnum):
    """The mode of a table: each record becomes a row (append), or replaces the row of its key (upsert)."""

    APPEND = "append"
    UPSERT = "upsert"


class Format(StrEnum):
    """The format in which a table is kept."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class Compression(StrEnum):
    """The codec of Parquet files, as users choose it."""

    LZ4 = "lz4"
    SNAPPY = "snappy"
    ZSTD = "zstd"
    GZIP = "gzip"
    NONE = "none"


COMPRESSION_PROPERTY = "millrace.compression"
LOADED = Compression.LZ4
SETTLED = Compression.ZSTD
LEVELS = {Compression.ZSTD: 1, Compression.GZIP: 6}


def compression_properties(compression: Compression | None) -> dict[str, str]:
    """Returns the table property that stores the chosen compression; none for None."""
    return {} if compression is None else {COMPRESSION_PROPERTY: str(compression)}


def loaded_compression(properties: Mapping[str, str]) -> Compression:
    """Returns the codec with which loads write files, according to a table's properties.

    Raises WarehouseError for an unknown codec.
    """
    return _chosen(properties, LOADED)


def settled_compression(properties: Mapping[str, str]) -> Compression:
    """Returns the codec for files of a compaction or other rewrite; raises WarehouseError for an unknown codec."""
    return _chosen(properties, SETTLED)


def _chosen(properties: Mapping[str, str], default: Compression) -> Compression:
    chosen = properties.get(COMPRESSION_PROPERTY, default)
    try:
        return Compression(chosen)
    except ValueError:
        raise WarehouseError(f"{COMPRESSION_PROPERTY} is {chosen!r}, not one of {', '.join(Compression)}") from None
