"""A log that is opened cuts nothing that was synced: it names the damage, and serves all around it at its offsets."""

import re
from itertools import pairwise
from random import Random

import pytest

from millrace.errors import CorruptRecordError, MillraceError
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.record import decode_records, encode_batch
from millrace_broker.storage.recovery.range_files import read_damage
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
    whole_batches,
    with_swapped_blocks,
    write,
)

END_OF_ALL = 1 << 40


def offsets_of(damage):
    return {offset for _, one in damage for offset in range(one.start_offset, one.end_offset)}


def read_around(log):
    """Returns the records by offset, and the offsets that can't be read: reads refuse them, or the bytes are damaged.

    The log has no gaps, so a batch that does not begin at the offset that is expected has a damaged one.
    """
    found, refused, offset = {}, set(), log.log_start_offset
    while offset < log.log_end_offset:
        try:
            records = {one.offset: one.value for one in decode_records(log.read(offset, 1, up_to_offset=END_OF_ALL))}
        except DamagedRangeError as error:
            refused |= set(range(offset, error.end_offset))
            offset = error.end_offset
        except CorruptRecordError:
            refused.add(offset)
            offset += 1
        else:
            if min(records) == offset:
                found |= records
                offset = max(records) + 1
            else:
                refused.add(offset)
                offset += 1
    return found, refused


FLIPS = [(0, 6), (7, 0), (7, 4), (5, 3), (8, 0), (8, 7), (10, 1), (11, 2), (16, 0), (17, 3), (22, 2), (24, 7)]
IN_A_RECORD = (HEADER_BYTES + 3, 1)


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])
@pytest.mark.parametrize("name", [SEGMENTS[0], SEGMENTS[3], SEGMENTS[-1]])
@pytest.mark.parametrize("number", [0, 1, -1], ids=["first batch", "second batch", "last batch"])
@pytest.mark.parametrize("place", [*FLIPS, IN_A_RECORD], ids=str)
def test_one_flip_costs_one_batch_at_most(clean, name, number, place):
    byte, bit = place
    content = content_of(GOOD, name)
    position, header = list(walk(content))[number]
    batch = set(range(header.base_offset, header.next_offset))
    fs = GOOD.after_kill()
    write(fs, name, flip(content, position + byte, bit))
    log = open_log(fs, clean=clean)
    found, refused = read_around(log)
    assert log.log_end_offset == END
    assert set(found.items()) <= set(WRITTEN.items())
    assert WRITTEN.keys() - found.keys() <= batch
    assert found.keys() | refused == WRITTEN.keys()
    assert log.verify().findings
    assert log.append(encode_batch(values(END)), leader_epoch=9).first_offset == END
    log.close()
    again = open_log(fs, clean=True, recovery_point=END + RECORDS, high_watermark=END + RECORDS)
    assert again.log_end_offset == END + RECORDS
    assert read_around(again)[0].keys() - range(END, END + RECORDS) == found.keys()


CHECKED = [(numbers, place) for numbers in ((0,), (1,), (-1,), (1, 3)) for place in (*FLIPS, IN_A_RECORD)]
CHECKED += [((1, 2), place) for place in (*FLIPS, IN_A_RECORD) if place[0] >= 8]  # which offset is right stays open


@pytest.mark.parametrize("name", [SEGMENTS[0], SEGMENTS[3], SEGMENTS[-1]])
@pytest.mark.parametrize(("numbers", "place"), CHECKED, ids=str)
def test_a_check_sets_aside_what_no_reader_has_met(name, numbers, place):
    fs = GOOD.after_kill()
    content = original = content_of(GOOD, name)
    batches = [list(walk(original))[number] for number in numbers]
    for position, _ in batches:
        content = flip(content, position + place[0], place[1])
    write(fs, name, content)
    lost = {offset for _, header in batches for offset in range(header.base_offset, header.next_offset)}
    log = open_log(fs, clean=True)
    assert log.verify().findings
    assert offsets_of(log.damage) == lost
    found, refused = read_around(log)
    assert (found, refused) == ({key: WRITTEN[key] for key in WRITTEN.keys() - lost}, lost)
    log.close()
    assert offsets_of(open_log(fs, clean=True).damage) == lost


@pytest.mark.usefixtures("without_logs")
@pytest.mark.soak(rounds=300, minutes=3)
def test_no_undamaged_record_is_lost(rounds):
    for seed in rounds:
        chance = Random(seed)
        fs, lost = GOOD.after_kill(), set()
        names = chance.sample(SEGMENTS, chance.choice([1, 1, 2]))
        for name in names:
            original = content_of(GOOD, name)
            content = damaged(original, chance)
            if content is None:
                fs.unlink(f"{FOLDER}/{name}")
            else:
                write(fs, name, content)
            every = {offset for _, header in walk(original) for offset in range(header.base_offset, header.next_offset)}
            lost |= every - whole_batches(content or b"", original)
        for name in fs.listdir(FOLDER):
            if chance.random() < 0.1 and not name.endswith(".log"):
                fs.unlink(f"{FOLDER}/{name}")
        clean = chance.random() < 0.5
        log = open_log(fs, clean=clean)
        found, refused = read_around(log)
        told = f"seed {seed}, {names}, clean {clean}"
        assert log.log_end_offset == END, told
        assert {key: WRITTEN[key] for key in found} == found, told
        assert WRITTEN.keys() - found.keys() <= lost, told
        first = min(found, default=END)
        assert found.keys() | refused >= set(range(first, END)), told
        log.close()
        again = open_log(fs, clean=chance.random() < 0.5)
        assert read_around(again)[0] == found, told


@pytest.mark.usefixtures("without_logs")
@pytest.mark.soak(rounds=200, minutes=1)
def test_blocks_of_batches_that_have_changed_places_are_named(rounds):
    """Which of them are out of place stays open; what is not read is named, and no byte is cut."""
    for seed in rounds:
        chance = Random(seed)
        fs, name = GOOD.after_kill(), chance.choice(SEGMENTS)
        original = content_of(fs, name)
        content = with_swapped_blocks(original, chance)
        write(fs, name, content)
        log = open_log(fs, clean=chance.random() < 0.5)
        log.verify()
        found, _ = read_around(log)
        told = f"seed {seed}, {name}"
        swapped = {offset for _, header in walk(original) for offset in range(header.base_offset, header.next_offset)}
        assert log.log_end_offset == END, told
        assert {key: WRITTEN[key] for key in found} == found, told
        assert WRITTEN.keys() - found.keys() <= offsets_of(log.damage) & swapped, told
        assert content_of(fs, name) == content, told
        log.close()
        again = open_log(fs, clean=chance.random() < 0.5)
        assert WRITTEN.keys() - read_around(again)[0].keys() <= offsets_of(again.damage) & swapped, told


def test_ranges_are_kept_in_a_file_that_is_made_again():
    fs = GOOD.after_kill()
    content = content_of(GOOD, SEGMENTS[1])
    write(fs, SEGMENTS[1], content[:30] + bytes(200) + content[230:])
    log = open_log(fs, clean=False, recovery_point=END)
    read_around(log)
    log.close()
    log = open_log(fs, clean=True)
    refused = read_around(log)[1]
    log.close()
    path = "damaged-ranges"
    named = content_of(fs, path)
    assert re.fullmatch(rb"version: 0\n(\d+ \d+ \d+ \d+ \d+ .+\n)+crc32c: [0-9a-f]{8}\n", named)
    for at in range(0, len(named), 7):
        write(fs, path, flip(named, at, at % 8))
        open_log(fs, clean=True).close()
        assert content_of(fs, path) == named
    [ranges] = read_damage(fs, FOLDER).values()
    assert {offset for one in ranges for offset in range(one.start_offset, one.end_offset)} == refused
    write(fs, SEGMENTS[1], content)
    assert read_around(open_log(fs, clean=True)) == (WRITTEN, set())
    assert path not in fs.listdir(FOLDER)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("bit", [3, 10, 26, 40])
def test_a_recovery_point_beyond_the_end_is_refused(clean, bit, caplog):
    log = open_log(GOOD.after_kill(), clean=clean, recovery_point=END | 1 << bit)
    assert (log.log_end_offset, read_around(log)) == (END, (WRITTEN, set()))
    assert f"its recovery point is said to be {END | 1 << bit}: that is refused" in caplog.text or END | 1 << bit == END


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("bit", [8, 10, 26, 40])
def test_a_log_start_offset_beyond_the_end_deletes_nothing(clean, bit, caplog):
    log = open_log(GOOD.after_kill(), clean=clean, log_start_offset=7 | 1 << bit)
    assert (log.log_start_offset, log.log_end_offset, read_around(log)) == (0, END, (WRITTEN, set()))
    assert "that is refused, and it starts at 0" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_is_missing_is_a_hole_and_not_nothing(clean):
    for name, following in pairwise(SEGMENTS[1:]):
        fs = GOOD.after_kill()
        for suffix in (".log", ".index", ".timeindex"):
            fs.unlink(f"{FOLDER}/{name.removesuffix('.log')}{suffix}")
        log = open_log(fs, clean=clean)
        hole = set(range(int(name[:20]), int(following[:20])))
        assert read_around(log) == ({key: WRITTEN[key] for key in WRITTEN if key not in hole}, hole)
        with pytest.raises(MillraceError, match=f"offsets {min(hole)} to {max(hole)} are missing"):
            log.read(min(hole) + 1, 100, up_to_offset=END)
        assert [f"{min(hole)} to {max(hole)}" in finding.reason for finding in log.verify().findings] == [True]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_first_segments_that_are_missing_are_a_hole_where_an_index_is_left(clean, count):
    fs = GOOD.after_kill()
    for name in SEGMENTS[:count]:
        fs.unlink(f"{FOLDER}/{name}")
    log = open_log(fs, clean=clean)
    hole = set(range(int(SEGMENTS[count][:20])))
    assert log.log_start_offset == 0
    assert read_around(log) == ({key: WRITTEN[key] for key in WRITTEN if key not in hole}, hole)
    assert offsets_of(log.damage) == hole


@pytest.mark.parametrize("clean", [True, False])
def test_a_first_segment_whose_deletion_a_crash_has_interrupted_is_no_hole(clean):
    fs = GOOD.after_kill()
    fs.rename(f"{FOLDER}/{SEGMENTS[0]}", f"{FOLDER}/{SEGMENTS[0]}.deleted")
    log = open_log(fs, clean=clean)
    assert (log.log_start_offset, log.damage) == (int(SEGMENTS[1][:20]), [])
    assert not [name for name in fs.listdir(FOLDER) if name.startswith(SEGMENTS[0][:20])]


def test_first_segments_below_the_log_start_are_no_hole():
    fs = GOOD.after_kill()
    fs.unlink(f"{FOLDER}/{SEGMENTS[0]}")
    start = int(SEGMENTS[1][:20])
    log = open_log(fs, clean=True, log_start_offset=start)
    assert (log.log_start_offset, log.damage) == (start, [])
