"""Every name that the storage engine gives to a file or a folder, as Kafka does (docs/formats/data-directory.md).

<data dir>/
  .lock                                   held while a broker uses the folder
  .kafka_cleanshutdown                    there only after a shutdown that synced everything
  meta.properties                         which cluster and broker the folder belongs to
  boot-id                                 the start of the machine in which the folder was used last; not Kafka's
  recovery-point-offset-checkpoint        the offset up to which each log is on the disk
  log-start-offset-checkpoint             first offset of each log
  replication-offset-checkpoint           high watermarks
  cleaner-offset-checkpoint               first dirty offset of each compacted log
  scrub-checkpoint                        up to where the scrubber's round has come (`scrubber.rounds`)
  <topic>-<partition>/
    partition.metadata                    the topic's id
    leader-epoch-checkpoint               first offset of each leader epoch
    damaged-ranges                        what is damaged in the log, where anything is (`range_files`)
    repaired-ranges                       offsets that a repair has given up, where it has any (`range_files`)
    txnindex-checksums                    what the .txnindex files of closed segments are (`range_files`)
    offset-gaps                           there where a follower has left out offsets as its leader does (`range_files`)
    <20-digit base offset>.log            batches
    <20-digit base offset>.index          offset -> position
    <20-digit base offset>.timeindex      timestamp -> offset
    <20-digit base offset>.txnindex       aborted transactions; only where there are any
    <20-digit offset>.snapshot            producers as of a segment's base offset, or of a clean shutdown
    <any of these>.deleted                cut by retention, to be removed (`log_checkpoints`)
    <any of these>.replaced.deleted       replaced, as by compaction, to be removed (`segment_swap`)
    <any of these>.cleaned                being written by compaction
    <any of these>.healed.tmp             being written in the place of a damaged segment (`healing`)
    <any of these>.swap                   complete, about to take the place of what it was made of
  <topic>-<partition>.<32 hex>-future/    a copy that is being made here of a log in another folder (`moves`)
  <topic>-<partition>.<32 hex>-delete/    a deleted or moved partition, to be removed
  <topic>-<partition>.<32 hex>-stray/     a log that made way for that of another topic of its name; nothing reads it
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from typing import NamedTuple

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
BOOT_ID = "boot-id"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
SCRUB_CHECKPOINT = "scrub-checkpoint"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
OFFSET_GAPS = "offset-gaps"
DAMAGED_RANGES = "damaged-ranges"
TXNINDEX_CHECKSUMS = "txnindex-checksums"
REPAIRED_RANGES = "repaired-ranges"

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
DELETED_FILE_SUFFIX = ".deleted"
REPLACED_FILE_SUFFIX = ".replaced.deleted"
CLEANED_FILE_SUFFIX = ".cleaned"
HEALED_FILE_SUFFIX = ".healed.tmp"  # what ends with .tmp, a start removes
SWAP_FILE_SUFFIX = ".swap"
REWRITTEN_FILE_SUFFIX = ".rewritten.tmp"
DELETED_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"

MAX_NAME_BYTES = 255
MAX_TOPIC_BYTES = 249
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")
_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]+)")
_FUTURE_DIR = re.compile(_PARTITION_DIR.pattern + r"\.[0-9a-f]{32}" + FUTURE_DIR_SUFFIX)


class TopicPartition(NamedTuple):
    """One partition of a topic; as text, the name of its folder: `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers by topic."""
    indexes: dict[str, list[int]] = {}
    for topic, index in topic_partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Returns a name such as `00000000000000000042.log`, zero-padded, so that names sort as offsets do."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file_name(name: str) -> tuple[int, str] | None:
    """Returns (base offset, suffix) of a segment's file, None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or match[2] not in SEGMENT_SUFFIXES:
        return None
    return int(match[1]), match[2]


def parse_snapshot_file_name(name: str) -> int | None:
    """Returns the offset of a producer snapshot, None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return int(match[1]) if match is not None and match[2] == PRODUCER_SNAPSHOT_SUFFIX else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Returns the partition whose folder has this name, such as `topic-0`; None for any other name."""
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def is_partition_name(topic_partition: TopicPartition) -> bool:
    """Returns whether a topic and partition that another broker has sent make a valid folder name."""
    topic, name = topic_partition.topic, str(topic_partition)
    return len(topic) <= MAX_TOPIC_BYTES and topic not in {".", ".."} and parse_partition_dir(name) == topic_partition


def future_dir_name(topic_partition: TopicPartition, unique: uuid.UUID) -> str:
    """Returns `topic-0.<hex>-future`, the folder of a log's copy; long topics exceed `MAX_NAME_BYTES` (KAFKA-4893)."""
    return f"{topic_partition}.{unique.hex}{FUTURE_DIR_SUFFIX}"


def parse_future_dir(name: str) -> TopicPartition | None:
    """Returns the partition whose copy a folder holds, by its name `topic-0.<hex>-future`; None for others."""
    match = _FUTURE_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def unique_dir_name(topic_partition: TopicPartition, unique: uuid.UUID, suffix: str) -> str:
    """Returns the name of a deleted or a stray partition's folder; a long topic name is cut so that the whole fits."""
    ending = f"-{topic_partition.partition}.{unique.hex}{suffix}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(ending)] + ending
