"""Logs that a test fills, and a cleaner that compacts them when it says so: all on a disk in memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, Record, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, CompactionReport, Log, LogCleaner, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

T = TopicPartition("t", 0)
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "index.interval.bytes": "0",
    "delete.retention.ms": "5000",
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0.5",
}


class Store:
    """A manager with a cleaner, on a disk in memory."""

    def __init__(self, fs: CrashFileSystem | None = None, config: CleanerConfig | None = None) -> None:
        self.fs = fs or CrashFileSystem()
        self.clock = ManualClock(1_000_000)
        self.manager = LogManager(self.fs, self.clock, ["/data"], {}, "c" * 22, 1)
        self.manager.start()
        self.cleaner = LogCleaner(self.fs, self.clock, self.manager, config or CleanerConfig())

    def log(self, topic_partition: TopicPartition = T, **settings: str) -> Log:
        """Returns a log that is compacted in small segments, unless the settings say otherwise."""
        properties = COMPACT | {name.replace("_", "."): value for name, value in settings.items()}
        return self.manager.create(topic_partition, uuid.UUID(int=1), properties)

    def compact(self, *, force: bool = True) -> list[CompactionReport]:
        """Compacts what is dirty, which has to succeed, and gives up what was replaced."""
        reports = self.cleaner.run(force=force)
        self.manager.release_replaced()
        assert [report.error for report in reports] == [""] * len(reports)
        return reports

    def checkpoint(self) -> str:
        """Returns the text of the file in which the cleaner keeps how far it has come."""
        fd = self.fs.open("/data/cleaner-offset-checkpoint")
        try:
            return self.fs.pread(fd, 1000, 0).decode()
        finally:
            self.fs.close(fd)


def put(log: Log, *pairs: tuple[str, str | None], at: int = 900_000, codec: Codec = Codec.NONE) -> None:
    """Appends keys with their values, each in a batch of its own."""
    for key, value in pairs:
        record = NewRecord(None if value is None else value.encode(), key=key.encode(), timestamp_ms=at)
        log.append(encode_batch([record], codec=codec), leader_epoch=0)


def fill(log: Log, count: int, keys: int) -> None:
    """Appends so many records of so many keys, whose values are their offsets."""
    start = log.log_end_offset
    put(log, *((f"k{number % keys}", f"{number}") for number in range(start, start + count)))


def records(log: Log) -> list[Record]:
    """Returns all records, as a consumer reads them."""
    found: list[Record] = []
    offset = log.log_start_offset
    while data := log.read(offset, 500, up_to_offset=log.log_end_offset):
        found += [record for record in decode_records(data) if record.offset >= offset]
        offset = [header for _, header in walk(data)][-1].next_offset
    assert offset == log.log_end_offset
    return found


def last_values(found: Sequence[Record]) -> dict[bytes | None, bytes | None]:
    """Returns the newest value of each key."""
    return {record.key: record.value for record in found}
