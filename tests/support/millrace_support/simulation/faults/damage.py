"""Faults of files: bits rot, names are lost, files are cut or have zeros in them, while their broker runs or is down.

Whatever happens to a partition's records, another replica in sync has a sound copy of them (`copies`). All else in its
folder can be made again, and is damaged at will. But where nothing would tell that a segment is lost, one of its names
stays (`_is_last_sign`).
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.records.batch import HEADER_BYTES
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.checkpoints import is_checked, read_offsets
from millrace_broker.storage.filenames import (
    DELETED_FILE_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    parse_segment_file_name,
)
from millrace_support.simulation.faults.breaker import Breaker, Faults
from millrace_support.simulation.faults.copies import copies, files, folder, is_struck, may_lose
from millrace_support.simulation.faults.epochs import (
    EPOCH,
    epoch_is_certain,
    epoch_rots,
    file_is_certain,
    has_rotten_epoch,
)
from millrace_support.simulation.simulated_broker import DATA_DIR, SimulatedBroker

FAULTS = Faults()
WHILE_DOWN, MOST_FILES, TRIES = 0.5, 4, 10
SUFFIXES = (LOG_SUFFIX, LOG_SUFFIX, LOG_SUFFIX, ".index", ".timeindex", ".txnindex", ".snapshot")
BASE_OFFSET_BYTES, CRC_COVERS = 8, 21
IN_AN_EPOCH = 0.2
FEWEST_ZEROS = HEADER_BYTES

Harm = Callable[[Breaker, SimulatedBroker, str], "Change | None"]


class Change:
    """What becomes of a file: the bytes from `begin` on and before `end` are others, or the name is gone."""

    def __init__(self, text: str, begin: int, end: int, change: Callable[[bytearray], None] | None) -> None:
        self.text = text
        self.begin = begin
        self.end = end
        self.change = change

    @property
    def is_flip(self) -> bool:
        """Whether it is a bit of one byte that changes."""
        return self.end == self.begin + 1


@FAULTS.add
async def rot(breaker: Breaker) -> None:
    """Flips a bit of some files."""
    await _strike(breaker, _flipped)


@FAULTS.add
async def lose_files(breaker: Breaker) -> None:
    """Loses the names of some files."""
    await _strike(breaker, _lost)


@FAULTS.add
async def tear(breaker: Breaker) -> None:
    """Cuts some files, or puts zeros in the place of a part of them."""
    await _strike(breaker, _torn)


async def _strike(breaker: Breaker, harm: Harm) -> None:
    """Damages files of a broker that runs, or is down, or is to be down for a while."""
    chance = breaker.chance
    broker = chance.choice([*breaker.brokers.values()])
    ends = broker.is_running and not broker.is_paused and chance.random() < WHILE_DOWN
    if ends:
        await _end(breaker, broker)
    for _ in range(chance.randint(1, MOST_FILES)):
        _strike_one(breaker, broker, harm)
    if ends:
        await breaker.starts_again(broker)


async def _end(breaker: Breaker, broker: SimulatedBroker) -> None:
    if breaker.chance.random() < 0.5:
        breaker.note(f"broker {broker.id} is killed")
        broker.die()
    else:
        breaker.note(f"broker {broker.id} shuts down")
        await broker.shut_down()


def _strike_one(breaker: Breaker, broker: SimulatedBroker, harm: Harm) -> None:
    """Damages one file that chance decides, if that may be."""
    hosted = [key for key in breaker.partitions if broker.id in breaker.simulation.replicas[key]]
    for _ in range(TRIES if hosted else 0):
        key = breaker.chance.choice(hosted)
        name = _name(breaker, broker, key)
        if name is None:
            continue
        path = f"{folder(key)}/{name}"
        change = harm(breaker, broker, path)
        if change is not None and change.change is None and _is_last_sign(breaker, broker, key, path):
            continue
        if change is not None and _may_be(breaker, broker, key, path, change):
            breaker.note(f"broker {broker.id}: {path} {change.text}")
            if change.change is None:
                broker.fs.lose(path)
            else:
                broker.fs.damage(path, change.change)
            return


def _name(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition) -> str | None:
    """Returns one of the names of files in a partition's folder, of a kind that chance decides."""
    suffix = breaker.chance.choice((*SUFFIXES, LEADER_EPOCH_CHECKPOINT))
    names = [name for name in files(broker.fs, key) if name.endswith(suffix)]
    return breaker.chance.choice(names) if names else None


def _may_be(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition, path: str, change: Change) -> bool:
    """Returns whether no last copy is hit, and takes note where a copy is."""
    if path.endswith((LOG_SUFFIX, LEADER_EPOCH_CHECKPOINT)) and has_rotten_epoch(breaker, broker, key):
        return False
    if path.endswith(LEADER_EPOCH_CHECKPOINT):
        return not change.is_flip or file_is_certain(broker, key)
    if not path.endswith(LOG_SUFFIX):
        return True
    whole = list(copies(broker.fs.content(path)))
    hit = [one for one in whole if one.begin < change.end and change.begin < one.end]
    was_struck = is_struck(breaker, broker, key)
    if not may_lose(breaker, broker, key, hit):
        return False
    if change.is_flip and hit and change.begin - hit[0].begin in EPOCH:
        if was_struck or not epoch_is_certain(breaker, broker, key, whole, whole.index(hit[0])):
            return False
        epoch_rots(breaker, broker, key, path, change.begin)
    breaker.struck.add((broker.id, key))
    breaker.simulation.judge.damaged.add(key)
    return True


def _is_last_sign(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition, path: str) -> bool:
    """Returns whether a file is all that is left of a segment, and no start could tell that the segment is lost.

    Without it the log begins later, as after retention, or leaves offsets out, as after compaction (docs/logs.md).
    Of the last segment the recovery point tells, and where the log begins a checkpoint (`_shows_start`).
    """
    of_path = parse_segment_file_name(path.removeprefix(f"{folder(key)}/"))
    bases = [parsed[0] for name in files(broker.fs, key) if (parsed := parse_segment_file_name(name))]
    if of_path is None or bases.count(of_path[0]) > 1 or of_path[0] == max(bases):
        return False
    if of_path[0] == min(bases):
        return breaker.simulation.former is not None or not _shows_start(broker, key)
    return "cleanup.policy" in breaker.simulation.world.topic_configs.get(key.topic, {})


def _shows_start(broker: SimulatedBroker, key: TopicPartition) -> bool:
    """Returns whether a start knows where a log begins, and meets no names of deleted segments; 0.1.0 never does."""
    path = f"{DATA_DIR}/{LOG_START_OFFSET_CHECKPOINT}"
    is_known = is_checked(broker.fs, path) and key in read_offsets(broker.fs, path)
    return is_known and not any(name.endswith(DELETED_FILE_SUFFIX) for name in files(broker.fs, key))


def _flipped(breaker: Breaker, broker: SimulatedBroker, path: str) -> Change | None:
    content = broker.fs.content(path)
    if not content:
        return None
    at, bit = breaker.chance.randrange(len(content)), 1 << breaker.chance.randrange(8)
    if path.endswith(LOG_SUFFIX):
        if breaker.chance.random() < IN_AN_EPOCH:
            at = _in_an_epoch(at, content)
        if not _is_seen(broker, at, content):
            return None

    def change(data: bytearray) -> None:
        if at < len(data):
            data[at] ^= bit

    return Change(f"rots at byte {at}", at, at + 1, change)


def _in_an_epoch(at: int, content: bytes) -> int:
    """Returns the position of a byte of the leader epoch of the batch at a position, if there is a whole one."""
    epochs = (one.begin + EPOCH[at % len(EPOCH)] for one in copies(content) if one.begin <= at < one.end)
    return next(epochs, at)


def _is_seen(broker: SimulatedBroker, at: int, content: bytes) -> bool:
    """Returns whether readers can see that a byte has changed.

    No checksum covers the leader epoch of a batch, which those beside it may show (`epochs`), nor its offset. A wrong
    offset leaves a gap between sound batches, for which a broker looks once after its start.
    """
    whole = list(copies(content))
    inside = next((at - one.begin for one in whole if one.begin <= at < one.end), CRC_COVERS)
    may_move = not broker.is_running and sum(len(one.data) for one in whole) == len(content)
    return may_move or inside >= BASE_OFFSET_BYTES


def _lost(_: Breaker, broker: SimulatedBroker, path: str) -> Change | None:
    content = broker.fs.content(path)
    if path.endswith(LOG_SUFFIX) and not content:
        return None  # no other replica has what a running broker writes to it next
    return Change("is lost", 0, len(content), None)


def _torn(breaker: Breaker, broker: SimulatedBroker, path: str) -> Change | None:
    chance, content = breaker.chance, broker.fs.content(path)
    size = len(content)
    if not size:
        return None
    begin = chance.randrange(size)
    if chance.random() < 0.5:
        return Change(f"is cut at byte {begin}", begin, size, lambda data: _cut(data, begin))
    end = min(size, begin + max(FEWEST_ZEROS, chance.randrange(size)))
    if any(one.begin < end < one.begin + CRC_COVERS for one in copies(content)):
        return None  # no checksum covers what the batch would have left
    return Change(f"has zeros in bytes {begin} to {end}", begin, end, lambda data: _clear(data, begin, end))


def _cut(data: bytearray, begin: int) -> None:
    del data[begin:]


def _clear(data: bytearray, begin: int, end: int) -> None:
    end = min(end, len(data))
    if begin < end:
        data[begin:end] = bytes(end - begin)
