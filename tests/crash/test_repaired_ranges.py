"""A repair closes what is damaged or missing in a log: it is a gap from then on, and all else stays at its offsets.

Where the repair is cut off at any operation, the log is damaged as before or repaired, and the repair can be run again.
"""

from random import Random

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.record import decode_records, encode_batch
from millrace_broker.storage.checkpoints import read_offsets, write_offsets
from millrace_broker.storage.filenames import (
    DAMAGED_RANGES,
    RECOVERY_POINT_CHECKPOINT,
    REPAIRED_RANGES,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_partition_dir,
    segment_file_name,
)
from millrace_broker.storage.recovery.offline_logs import check_logs, logs_in, repair
from millrace_broker.storage.recovery.range_files import read_repaired
from millrace_broker.storage.segments.damage import DamagedRangeError
from millrace_support.damaged_log import (
    END,
    FOLDER,
    GOOD,
    RECORDS,
    SEGMENTS,
    WRITTEN,
    content_of,
    damaged,
    flip,
    open_log,
    values,
    write,
)

pytestmark = pytest.mark.usefixtures("without_logs")
CHECKPOINT = f"/{RECOVERY_POINT_CHECKPOINT}"
HIGH_WATERMARKS = f"/{REPLICATION_OFFSET_CHECKPOINT}"
PARTITION = parse_partition_dir(FOLDER[1:])
END_OF_ALL = 1 << 40


def reopened(fs, *, clean):
    """Opens the log as the manager does, with the recovery point that the checkpoint says."""
    point = read_offsets(fs, CHECKPOINT)[PARTITION]
    return open_log(fs, clean=clean, recovery_point=point, high_watermark=point)


def say_end(fs, end):
    """Writes the checkpoints of a log that was synced and replicated up to its end."""
    write_offsets(fs, CHECKPOINT, {PARTITION: end})
    write_offsets(fs, HIGH_WATERMARKS, {PARTITION: end})


def readable(log):
    """Returns the records that the log gives, by offset, with all that is damaged passed over."""
    found, offset = {}, log.log_start_offset
    while offset < log.log_end_offset:
        try:
            records = list(decode_records(log.read(offset, 1, up_to_offset=END_OF_ALL)))
        except DamagedRangeError as error:
            offset = error.end_offset
        except CorruptRecordError:
            offset += 1
        else:
            if not records:
                break
            found |= {one.offset: one.value for one in records}
            offset = max(found) + 1
    return found


def known_to_a_broker(fs, *, clean):
    """Opens the log, reads it, so that all damage is named, and closes it; returns what it gives."""
    say_end(fs, END)
    log = reopened(fs, clean=clean)
    found, end = readable(log), log.log_end_offset
    log.close()
    return found, end


def check_whole(fs, found, end, told):
    """Checks that no start takes anything for damage, that all is read, and that the log goes on at its end.

    A leader epoch, which no CRC covers, is left to the broker's scrubber.
    """
    for clean in (True, False):
        log = reopened(left := fs.after_kill(), clean=clean)
        assert log.damage == [], told
        assert DAMAGED_RANGES not in left.listdir(FOLDER), told
        assert log.log_end_offset == end, told
        assert readable(log) == found, told
        assert [one for one in log.verify().findings if "leader epoch" not in one.reason] == [], told
        assert log.append(encode_batch(values(end)), leader_epoch=9).first_offset == end, told
        log.close()
        say_end(left, end + RECORDS)
        again = reopened(left, clean=not clean)
        assert (again.damage, again.log_end_offset) == ([], end + RECORDS), told
        assert readable(again).keys() == found.keys() | set(range(end, end + RECORDS)), told


def spoiled(seed):
    """Returns a log that was damaged in one or two segments, and what was done."""
    chance = Random(seed)
    fs, names = GOOD.after_kill(), chance.sample(SEGMENTS[1:], chance.choice([1, 1, 2]))
    for name in names:
        content = damaged(content_of(fs, name), chance)
        if content is None:
            fs.unlink(f"{FOLDER}/{name}")
        else:
            write(fs, name, content)
    return fs, chance, f"seed {seed}, {names}"


@pytest.mark.soak(rounds=150, minutes=3)
def test_what_a_broker_has_named_is_closed(rounds):
    for seed in rounds:
        fs, chance, told = spoiled(seed)
        found, end = known_to_a_broker(fs, clean=chance.random() < 0.5)
        repair(fs, logs_in(fs, FOLDER))
        assert not any(report.findings for report in check_logs(fs, logs_in(fs, FOLDER))), told
        assert repair(fs, logs_in(fs, FOLDER)) == [], told
        assert {key: WRITTEN[key] for key in found} == found, told
        check_whole(fs, found, end, told)


@pytest.mark.soak(rounds=150, minutes=3)
def test_what_no_broker_has_seen_is_closed(rounds):
    for seed in rounds:
        fs, _, told = spoiled(seed)
        say_end(fs, END)
        found = readable(reopened(fs.after_kill(), clean=True))
        repair(fs, logs_in(fs, FOLDER))
        check_whole(fs, found, END, told)


def repaired_in_pieces(seed):
    """Cuts the power at each operation of a repair, looks at what is left, and repairs that."""
    fs, chance, told = spoiled(seed)
    found, end = known_to_a_broker(fs, clean=True)
    reports = check_logs(fs, logs_in(fs, FOLDER))
    lost = {offset for one in reports for each in one.damage for offset in range(each.start_offset, each.end_offset)}
    if not any(report.findings for report in reports):
        return
    for cut_at in fs.each_change(lambda: repair(fs, logs_in(fs, FOLDER))):
        left, told_here = fs.after_cut(chance.choice([None, Random(cut_at)])), f"{told}, operation {cut_at}"
        log = reopened(left.after_kill(), clean=chance.random() < 0.5)
        assert (readable(log), log.log_end_offset) == (found, end), told_here
        for _, one in log.damage:
            assert lost.issuperset(range(one.start_offset, one.end_offset)), told_here
        repair(left, logs_in(left, FOLDER))
        check_whole(left, found, end, told_here)


@pytest.mark.soak(rounds=6, minutes=3)
def test_the_power_goes_at_any_operation(rounds):
    for seed in rounds:
        repaired_in_pieces(seed)


def with_a_hole():
    """Returns a log that was repaired, the second segment of which is gone, and the offsets of the hole."""
    fs = GOOD.after_kill()
    for suffix in (".log", ".index", ".timeindex"):
        fs.unlink(f"{FOLDER}/{SEGMENTS[1].removesuffix('.log')}{suffix}")
    known_to_a_broker(fs, clean=True)
    repair(fs, logs_in(fs, FOLDER))
    return fs, range(int(SEGMENTS[1][:20]), int(SEGMENTS[2][:20]))


def test_a_log_that_is_cut_gives_up_what_was_repaired_above():
    fs, hole = with_a_hole()
    log = reopened(fs, clean=True)
    log.truncate_to(hole[0])
    for first in range(hole[0], hole[0] + 2 * len(hole), RECORDS):
        log.append(encode_batch(values(first)), leader_epoch=9)
    log.close()
    assert read_repaired(fs, FOLDER) == ()
    fs.unlink(f"{FOLDER}/{segment_file_name(hole[0], '.log')}")
    say_end(fs, log.log_end_offset)
    [(_, missing), *_] = reopened(fs, clean=True).damage
    assert missing.is_hole


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_damaged_file_names_nothing_and_a_repair_writes_it_again(at):
    fs, hole = with_a_hole()
    named = content_of(fs, REPAIRED_RANGES)
    write(fs, REPAIRED_RANGES, flip(named, at % len(named), at % 8))
    found, end = known_to_a_broker(fs, clean=True)
    [(_, missing)] = reopened(fs.after_kill(), clean=True).damage
    assert (missing.start_offset, missing.end_offset) == (hole.start, hole.stop)
    repair(fs, logs_in(fs, FOLDER))
    assert content_of(fs, REPAIRED_RANGES) == named
    check_whole(fs, found, end, f"byte {at}")
