"""The codec in which a topic keeps its batches (`compression.type`)."""

from __future__ import annotations

from millrace.records.compression import Codec
from millrace_broker.storage.config import LogConfig

UNCOMPRESSED_LIMIT_BYTES = 64 << 20
UNCOMPRESSED_LIMIT_FACTOR = 8


def codec_of_topic(config: LogConfig) -> Codec | None:
    """Returns the topic's own codec; None where it keeps the producer's."""
    match config.compression_type:
        case "producer":
            return None
        case "uncompressed":
            return Codec.NONE
        case name:
            return Codec[name.upper()]


def level_of_topic(config: LogConfig, codec: Codec) -> int | None:
    """Returns the level at which a topic compresses; None is the codec's usual one."""
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def uncompressed_limit_bytes(config: LogConfig) -> int:
    """Returns how many bytes a produced batch may hold, uncompressed, where the broker has to have all of them at once.

    Kafka sets no limit. Here it keeps a block of 1 MiB that grows a thousandfold from taking the memory.
    """
    return max(UNCOMPRESSED_LIMIT_BYTES, UNCOMPRESSED_LIMIT_FACTOR * config.max_message_bytes)
