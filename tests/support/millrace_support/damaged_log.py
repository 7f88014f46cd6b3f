"""A log of known records in memory, and damage to its segments of every kind."""

from random import Random

from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

FOLDER = "/t-0"
PARTITION = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
BATCHES, RECORDS = 63, 3
END = BATCHES * RECORDS
EVERYTHING = 1 << 30


def open_log(
    fs: CrashFileSystem,
    *,
    clean: bool,
    recovery_point: int = END,
    high_watermark: int = END,
    log_start_offset: int = 0,
) -> Log:
    """Opens the log of the folder by what its checkpoints would say."""
    return Log(
        fs, ManualClock(), FOLDER, PARTITION, CONFIG, clean=clean, recovery_point=recovery_point,
        high_watermark=high_watermark, log_start_offset=log_start_offset,
    )  # fmt: skip


def values(first: int, count: int = RECORDS) -> list[NewRecord]:
    """Returns the records of offsets, each with a value of its own."""
    offsets = range(first, first + count)
    return [NewRecord(b"%d " % offset * (offset % 7 + 1), timestamp_ms=offset) for offset in offsets]


def filled() -> CrashFileSystem:
    """Returns a disk with the whole log, synced and closed."""
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    log = open_log(fs, clean=False, recovery_point=0, high_watermark=0)
    for first in range(0, END, RECORDS):
        log.append(encode_batch(values(first)), leader_epoch=first // 50)
    log.close()
    return fs


GOOD = filled()
WRITTEN = {offset: bytes(new.value or b"") for offset, new in enumerate(values(0, END))}
SEGMENTS = sorted(name for name in GOOD.listdir(FOLDER) if name.endswith(".log"))


def content_of(fs: CrashFileSystem, name: str) -> bytes:
    """Returns the bytes of a file of the folder."""
    fd = fs.open(f"{FOLDER}/{name}")
    try:
        return fs.pread(fd, EVERYTHING, 0)
    finally:
        fs.close(fd)


def write(fs: CrashFileSystem, name: str, content: bytes) -> None:
    """Replaces the bytes of a file of the folder, and syncs them."""
    fd = fs.open(f"{FOLDER}/{name}", create=True)
    fs.truncate(fd, 0)
    fs.pwritev(fd, [content], 0)
    fs.fsync(fd)
    fs.close(fd)


def flip(content: bytes, at: int, bit: int) -> bytes:
    """Returns the content with one bit flipped."""
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def damaged(content: bytes, chance: Random) -> bytes | None:
    """Returns the content with a flipped bit, a zeroed block, a cut tail, swapped parts, and so on; None: no file."""
    at = chance.randrange(len(content))
    length = min(chance.choice([4, 16, 100, 512]), len(content) - at)
    block = min(length, 64)  # less than a batch: where whole ones change places, it stays open which are out of place
    other = chance.choice([*range(at - block + 1), *range(at + block, len(content) - block + 1)] or [at])
    swapped = bytearray(content)
    swapped[at : at + block] = content[other : other + block]
    swapped[other : other + block] = content[at : at + block]
    return chance.choice(
        [
            flip(content, at, chance.randrange(8)),
            content[:at] + bytes(length) + content[at + length :],
            content[:at],
            content[:at] + chance.randbytes(length) + content[at + length :],
            bytes(swapped[: len(content)]),
            content + chance.randbytes(length),
            content + bytes(length),
            None,
        ]
    )


def with_swapped_blocks(content: bytes, chance: Random) -> bytes:
    """Returns the content with two blocks of whole batches that have changed places."""
    bounds = [position for position, _ in walk(content)] + [len(content)]
    first, second, third, fourth = (bounds[at] for at in sorted(chance.sample(range(len(bounds)), 4)))
    return content[:first] + content[third:fourth] + content[second:third] + content[first:second] + content[fourth:]


def whole_batches(content: bytes, original: bytes) -> set[int]:
    """Returns the offsets of the batches of the original that are still at their place."""
    return {
        offset
        for position, header in walk(original)
        for offset in range(header.base_offset, header.next_offset)
        if content[position : position + header.size_bytes] == original[position : position + header.size_bytes]
    }
