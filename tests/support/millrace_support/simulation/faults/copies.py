"""Who has sound copies of records, as the bytes on the disks show: faults must leave one of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from millrace.errors import RecordError
from millrace.records.batch import HEADER_BYTES, MAGIC_POSITION, check_crc, read_header
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.checkpoints import read_offsets
from millrace_broker.storage.filenames import LOG_SUFFIX, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.simulation.faults.breaker import Breaker
from millrace_support.simulation.simulated_broker import DATA_DIR, SimulatedBroker


class Copy(NamedTuple):
    """A batch that is whole, and where it lies in its file."""

    begin: int
    end: int
    base_offset: int
    next_offset: int
    data: bytes


def folder(key: TopicPartition) -> str:
    """Returns the path of a partition's folder."""
    return f"{DATA_DIR}/{key}"


def files(fs: CrashFileSystem, key: TopicPartition) -> list[str]:
    """Returns the names of the files in a partition's folder; none where there is no folder."""
    return fs.listdir(folder(key)) if fs.exists(folder(key)) else []


def copies(content: bytes) -> Iterator[Copy]:
    """Yields the whole batches of a file, wherever they begin."""
    position = 0
    while position + HEADER_BYTES <= len(content):
        found = _copy_at(content, position)
        if found is None:
            position += 1
        else:
            yield found
            position = found.end


def _copy_at(content: bytes, position: int) -> Copy | None:
    if content[position + MAGIC_POSITION] != 2:
        return None
    try:
        header = read_header(memoryview(content), position)
        check_crc(memoryview(content), position, header)
    except RecordError:
        return None
    end = position + header.size_bytes
    return Copy(position, end, header.base_offset, header.next_offset, content[position:end])


def may_lose(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition, lost: Collection[Copy]) -> bool:
    """Returns whether a broker's copies of committed batches may be lost, as another replica in sync has them, too.

    What is above the recovery point may be cut off as a torn write is, with all behind it. Replicas of a compacted log
    have other batches: there another replica must have all that is committed.
    """
    if not lost:
        return True
    state = breaker.simulation.state_of(key)
    if state is None or max(one.next_offset for one in lost) > _witnessed(broker.fs, key) or is_moving(breaker, key):
        return False
    others = [breaker.brokers[one] for one in state.isr if one != broker.id]
    if "cleanup.policy" in breaker.simulation.world.topic_configs.get(key.topic, {}):
        return any(not is_struck(breaker, one, key) for one in others)
    on_disks = [_batches(one.fs, key) for one in others]
    return all(any(one.data in batches for batches in on_disks) for one in lost)


def holds_any(fs: CrashFileSystem, key: TopicPartition, begin: int, end: int) -> bool:
    """Returns whether a disk has a whole batch with an offset from `begin` on and before `end`."""
    logs = (name for name in files(fs, key) if name.endswith(LOG_SUFFIX))
    found = (one for name in logs for one in copies(fs.content(f"{folder(key)}/{name}")))
    return any(one.base_offset < end and begin < one.next_offset for one in found)


def _witnessed(fs: CrashFileSystem, key: TopicPartition) -> int:
    names = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
    return min(read_offsets(fs, f"{DATA_DIR}/{name}").get(key, 0) for name in names)


def is_moving(breaker: Breaker, key: TopicPartition) -> bool:
    """Returns whether replicas of a partition are about to be removed, or its topic to be deleted."""
    topic = breaker.simulation.replicas.topic(key.topic)
    if topic is None or breaker.simulation.replicas.is_deleted(key.topic):
        return True
    return bool(topic.adding_replicas.get(key.partition) or topic.removing_replicas.get(key.partition))


def _batches(fs: CrashFileSystem, key: TopicPartition) -> set[bytes]:
    logs = (name for name in files(fs, key) if name.endswith(LOG_SUFFIX))
    return {one.data for name in logs for one in copies(fs.content(f"{folder(key)}/{name}"))}


def is_struck(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition) -> bool:
    """Returns whether a broker's copy of a partition was damaged and has not healed yet."""
    if (broker.id, key) in breaker.struck and _is_healed(breaker, broker, key):
        breaker.struck.discard((broker.id, key))
    return (broker.id, key) in breaker.struck


def _is_healed(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition) -> bool:
    """Returns whether the log of a running broker has no damage, nor its files."""
    log = broker.open_log(key) if broker.is_running else None
    if log is None:
        return key not in breaker.simulation.replicas or broker.id not in breaker.simulation.replicas[key]
    paths = [segment.path for segment in log.segments]
    if log.damage or log.healing.is_due or not all(map(broker.fs.exists, paths)):
        return False
    contents = [broker.fs.content(path) for path in paths]
    found = [list(copies(content)) for content in contents]
    if any(sum(len(one.data) for one in each) != len(content) for each, content in zip(found, contents, strict=True)):
        return False
    behind = pairwise(one for each in found for one in each)
    return log.config.is_compacted or all(one.next_offset == other.base_offset for one, other in behind)
