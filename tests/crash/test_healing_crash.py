"""The power is cut at any operation of a healing: a log loses nothing that it had, and heals completely afterwards.

The batches of "other replicas" are those of the log before it was damaged.
"""

import uuid
from random import Random

import pytest

from millrace.fs import read_file
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import LogManager, TopicPartition, hole_at_end
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker

T = TopicPartition("t", 0)
FOLDER = "/data/t-0"
SETTINGS = {"segment.bytes": "400", "index.interval.bytes": "100", "file.delete.delay.ms": "0"}
BATCHES = 20
NOW_MS = ManualClock().now_ms()
ABORT = EndTransactionMarker(ControlType.ABORT, coordinator_epoch=0)


def open_log(fs):
    manager = LogManager(fs, ManualClock(), ["/data"], {}, "c" * 22, 1)
    manager.start()
    return manager, manager.create(T, uuid.UUID(int=1), SETTINGS)


def filled():
    """A disk with a log of several segments, which was closed."""
    fs = CrashFileSystem()
    manager, log = open_log(fs)
    for number in range(BATCHES):
        producer = BatchProducer(7, 0, number)
        log.append(
            encode_batch([NewRecord(b"value %d" % number, timestamp_ms=NOW_MS)], producer=producer),
            leader_epoch=number // 8,
        )
    manager.close()
    return fs.after_cut()


def batches_of(fs):
    """Returns the bytes of each batch by offset."""
    found = {}
    for name in sorted(name for name in fs.listdir(FOLDER) if name.endswith(".log")):
        content = read_file(fs, f"{FOLDER}/{name}")
        for position, header in walk(content):
            found[header.base_offset] = content[position : position + header.size_bytes]
    return found


GOOD = filled()
WHOLE = batches_of(GOOD)


def segment_files(fs):
    return sorted(f"{FOLDER}/{name}" for name in fs.listdir(FOLDER) if name.endswith(".log"))


def overwrite(fs, path, content):
    fd = fs.open(path)
    fs.truncate(fd, 0)
    fs.pwritev(fd, [content], 0)
    fs.fsync(fd)
    fs.close(fd)


def flip(fs):
    path = segment_files(fs)[1]
    content = bytearray(read_file(fs, path))
    content[-3] ^= 1
    overwrite(fs, path, bytes(content))


def flip_two(fs):
    path = segment_files(fs)[1]
    content = bytearray(read_file(fs, path))
    positions = [position for position, _ in walk(bytes(content))]
    for position in (positions[0], positions[2]):
        content[position + 70] ^= 1
    overwrite(fs, path, bytes(content))


def cut(fs):
    path = segment_files(fs)[1]
    overwrite(fs, path, read_file(fs, path)[:100])


def delete(fs):
    for path in segment_files(fs)[1:3]:
        fs.unlink(path)
    fs.fsync_dir(FOLDER)


def heal(log, *, whole=WHOLE):
    """Heals a log as the healer does, from batches by offset; `reread_producers` comes at the end."""
    log.healing.roll()
    log.flush()
    for segment in log.healing.damaged_segments():
        hole = hole_at_end(segment)
        if hole is not None:
            fill_hole(log, segment, hole, whole)
        elif segment is not log.segments.active:
            with log.healing.healing(segment) as new:
                for one in segment.damage:
                    new.copy_up_to(one.position)
                    for offset in filter(whole.get, range(one.start_offset, one.end_offset)):
                        new.put(whole[offset])
                    new.end(one, one.end_offset)
                assert log.healing.put_in_place(segment, new, log.truncations)
    log.healing.reread_producers()
    log.release_replaced()
    log.name_damage()


def fill_hole(log, before, hole, whole):
    offsets = [*filter(whole.get, range(hole.start_offset, hole.end_offset)), hole.end_offset]
    while len(offsets) > 1:
        with log.healing.filling(offsets[0]) as new:
            while len(offsets) > 1 and new.segment.size_bytes < 250:
                new.put(whole[offsets.pop(0)])
            assert log.healing.put_into_hole(before, new, offsets[0], log.truncations)
        before = new.segment


def damaged(kind):
    fs = GOOD.after_cut()
    kind(fs)
    return fs.after_cut()


def run(fs):
    """Opens, finds what is damaged, heals, and closes."""
    manager, log = open_log(fs)
    log.verify()
    heal(log)
    manager.close()


def check_whole(fs):
    manager, log = open_log(fs)
    assert batches_of(fs) == WHOLE
    assert log.damage == []
    assert log.verify().findings == ()
    assert log.log_end_offset == BATCHES
    assert log.producers.entries[7].last_offset == BATCHES - 1
    assert [name for name in fs.listdir(FOLDER) if name.endswith((".tmp", ".swap"))] == []
    manager.close()


KINDS = [flip, flip_two, cut, delete]


@pytest.mark.parametrize("kind", KINDS)
def test_a_healing_is_whole(kind):
    fs = damaged(kind)
    assert batches_of_valid(fs) != WHOLE
    run(fs)
    assert fs.open_files == 0
    check_whole(fs.after_cut())


def batches_of_valid(fs):
    manager, log = open_log(fs)
    log.verify()
    found = {}
    for segment in log.segments:
        for position, header in segment.headers(0):
            found[header.base_offset] = segment.read_at(position, header.size_bytes)
    manager.close()
    return found


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_power_goes_at_any_operation(kind, seed):
    fs = damaged(kind)
    before = batches_of_valid(fs.after_cut())
    for cut_at in fs.each_change(lambda: run(fs)):
        left = fs.after_cut(None if seed is None else Random(seed * 1000 + cut_at))
        assert batches_of_valid(left.after_cut()).items() >= before.items()
        run(left)
        check_whole(left.after_cut())


@pytest.mark.parametrize("kind", KINDS)
def test_what_damage_has_hidden_of_transactions_is_known_afterwards(kind):
    """The first transaction's marker is damaged when the log is opened, and its producer seemed to go on with it."""
    fs = CrashFileSystem()
    manager, log = open_log(fs)
    for number in range(8):
        producer = BatchProducer(9, 0, number)
        log.append(
            encode_batch([NewRecord(b"in", timestamp_ms=NOW_MS)], producer=producer, flags=TRANSACTIONAL_FLAG),
            leader_epoch=0,
        )
        append_marker(log, ABORT, producer_id=9, producer_epoch=0, leader_epoch=0)
        log.append(encode_batch([NewRecord(b"%d" % one) for one in range(4)]), leader_epoch=0)
    whole = batches_of(fs)
    expected = log.aborted_transactions(0, log.log_end_offset), log.last_stable_offset(log.log_end_offset)
    manager.close()
    kind(fs)
    manager, log = open_log(fs.after_cut())
    log.verify()
    heal(log, whole=whole)
    assert (log.aborted_transactions(0, log.log_end_offset), log.last_stable_offset(log.log_end_offset)) == expected
    manager.close()


def flip_last(fs):
    path = next(one for one in reversed(segment_files(fs)) if read_file(fs, one))
    content = bytearray(read_file(fs, path))
    content[-3] ^= 1
    overwrite(fs, path, bytes(content))


def extend(fs):
    """Moves the end of a log whose last batch is damaged, as where its leader's batch reaches further."""
    manager, log = open_log(fs)
    log.verify()
    log.healing.roll()
    log.flush()
    log.healing.extend_end(BATCHES + 2)
    log.name_damage()
    manager.close()


def end_and_damage(fs):
    manager, log = open_log(fs)
    log.verify()
    found = log.log_end_offset, [(one.start_offset, one.end_offset) for _, one in log.damage]
    manager.close()
    return found


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_power_goes_while_a_damaged_end_is_moved(seed):
    fs = damaged(flip_last)
    before = batches_of_valid(fs.after_cut())
    assert before.keys() == WHOLE.keys() - {BATCHES - 1}
    for cut_at in fs.each_change(lambda: extend(fs)):
        left = fs.after_cut(None if seed is None else Random(seed * 1000 + cut_at))
        end, damage = end_and_damage(left.after_cut())
        assert (end, damage) in [(one, [(BATCHES - 1, one)]) for one in (BATCHES, BATCHES + 2)]
        extend(left)
        assert end_and_damage(left.after_cut()) == (BATCHES + 2, [(BATCHES - 1, BATCHES + 2)])
        assert batches_of_valid(left.after_cut()) == before
