"""One segment at a time is checked by its file's name: damage is set aside, what can be mended is written again."""

import pytest

from millrace.descriptor_pool import PooledFileSystem
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.record import decode_records
from millrace_broker.storage import DamagedRangeError
from millrace_support.damaged_log import END, FOLDER, GOOD, SEGMENTS, WRITTEN, content_of, flip, open_log, write

CLOSED = SEGMENTS[3]
EVERYTHING = 1 << 40
PLACES = {"offset": 7, "length": 11, "magic": 16, "CRC": 18, "attributes": 22, "record": HEADER_BYTES + 3}


def scrub(log):
    """Checks all segments, and returns the number of findings."""
    return sum(log.scrub(segment, lambda _: None).findings for segment in log.segments)


def offsets_of(damage):
    return {offset for _, one in damage for offset in range(one.start_offset, one.end_offset)}


def read_all(log):
    found, offset = {}, 0
    while offset < log.log_end_offset:
        records = decode_records(log.read(offset, EVERYTHING, up_to_offset=EVERYTHING))
        found |= {one.offset: one.value for one in records}
        offset = max(found) + 1
    return found


def batches_of(name):
    return list(walk(content_of(GOOD, name)))


@pytest.fixture
def fs():
    return GOOD.after_kill()


@pytest.fixture
def log(fs):
    log = open_log(fs, clean=True)
    yield log
    log.close()


def test_a_whole_log_has_no_findings(log):
    assert scrub(log) == 0
    assert log.damage == []


@pytest.mark.parametrize("name", [SEGMENTS[0], CLOSED, SEGMENTS[-1]], ids=["first", "closed", "active"])
@pytest.mark.parametrize("number", [0, 1, -1], ids=["first batch", "second batch", "last batch"])
@pytest.mark.parametrize("place", PLACES)
def test_a_flipped_bit_is_set_aside(fs, log, name, number, place):
    position, header = batches_of(name)[number]
    write(fs, name, flip(content_of(fs, name), position + PLACES[place], 2))
    assert scrub(log) == 1
    assert offsets_of(log.damage) == set(range(header.base_offset, header.next_offset))
    assert scrub(log) == 0  # it is known by now


@pytest.mark.parametrize("kept", [0, 1, 3])
@pytest.mark.parametrize("extra", [0, 30], ids=["at a batch", "in a batch"])
def test_a_file_that_was_cut_short_lacks_its_last_batches(fs, log, kept, extra):
    batches = batches_of(CLOSED)
    write(fs, CLOSED, content_of(GOOD, CLOSED)[: batches[kept][0] + extra])
    assert scrub(log) == 1
    assert offsets_of(log.damage) == set(range(batches[kept][1].base_offset, batches[-1][1].next_offset))


def test_a_file_that_is_gone_is_written_again(fs, log):
    fs.unlink(f"{FOLDER}/{CLOSED}")
    assert scrub(log) == 1
    assert content_of(fs, CLOSED) == content_of(GOOD, CLOSED)
    assert (log.damage, scrub(log), read_all(log)) == ([], 0, WRITTEN)


def test_a_file_that_another_one_has_replaced_is_written_again(fs, log):
    fs.unlink(f"{FOLDER}/{CLOSED}")
    write(fs, CLOSED, bytes(100))
    assert scrub(log) == 1
    assert content_of(fs, CLOSED) == content_of(GOOD, CLOSED)
    assert (log.damage, scrub(log)) == ([], 0)


def test_damage_in_a_file_that_is_gone_stays_set_aside(fs, log):
    position, header = batches_of(CLOSED)[1]
    content = flip(content_of(fs, CLOSED), position + PLACES["record"], 2)
    write(fs, CLOSED, content)
    fs.unlink(f"{FOLDER}/{CLOSED}")
    assert scrub(log) == 2
    assert content_of(fs, CLOSED) == content
    assert offsets_of(log.damage) == set(range(header.base_offset, header.next_offset))


def test_a_file_that_is_gone_and_not_open_any_more_is_set_aside_whole(fs):
    """Where files are many, the broker has given most of their descriptors back."""
    log = open_log(PooledFileSystem(fs, 1), clean=True)
    fs.unlink(f"{FOLDER}/{CLOSED}")
    batches = batches_of(CLOSED)
    start, end = batches[0][1].base_offset, batches[-1][1].next_offset
    assert scrub(log) == 1
    assert offsets_of(log.damage) == set(range(start, end))
    assert scrub(log) == 0
    with pytest.raises(DamagedRangeError):
        log.read(start, EVERYTHING, up_to_offset=EVERYTHING)
    assert next(iter(decode_records(log.read(end, EVERYTHING, up_to_offset=EVERYTHING)))).offset == end
    log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["flipped", "cut", "emptied", "gone"])
def test_an_index_that_does_not_fit_is_made_again(fs, log, suffix, harm):
    name = CLOSED.replace(".log", suffix)
    content = content_of(GOOD, name)
    if harm == "gone":
        fs.unlink(f"{FOLDER}/{name}")
    else:
        write(fs, name, {"flipped": flip(content, 3, 1), "cut": content[:-5], "emptied": b""}[harm])
    assert scrub(log) == 1
    assert content_of(fs, name) == content
    assert (log.damage, scrub(log), read_all(log)) == ([], 0, WRITTEN)


def test_the_active_segment_is_written_again_once_it_is_closed(fs, log):
    fs.unlink(f"{FOLDER}/{SEGMENTS[-1]}")
    active = log.segments.active
    assert log.scrub(active, lambda _: None).is_left
    log.append(content_of(GOOD, SEGMENTS[0])[: batches_of(SEGMENTS[0])[1][0]], leader_epoch=9)
    assert log.segments.active is not active
    log.flush()
    assert scrub(log) == 1
    assert content_of(fs, SEGMENTS[-1]) == content_of(GOOD, SEGMENTS[-1])


def test_the_active_segment_of_a_quiet_log_is_written_again_once_healing_has_begun_another(fs, log):
    fs.unlink(f"{FOLDER}/{SEGMENTS[-1]}")
    assert log.scrub(log.segments.active, lambda _: None).is_left
    assert (log.healing.is_due, log.healing.must_roll) == (True, True)
    log.healing.roll()
    log.flush()
    assert scrub(log) == 1
    assert content_of(fs, SEGMENTS[-1]) == content_of(GOOD, SEGMENTS[-1])
    assert (log.healing.is_due, log.damage, scrub(log), read_all(log)) == (False, [], 0, WRITTEN)


@pytest.mark.parametrize("change", ["truncated", "deleted", "closed"])
def test_what_the_log_has_lost_meanwhile_is_no_damage(fs, log, change):
    segment = log.segments[3]
    changes = {
        "truncated": lambda: log.truncate_to(segment.base_offset + 3),
        "deleted": lambda: (log.raise_log_start_offset(END), log.apply_retention(), log.remove_deleted()),
        "closed": log.close,
    }
    taken = []

    def pace(size_bytes):
        if not taken:
            changes[change]()
        taken.append(size_bytes)

    assert log.scrub(segment, pace).findings == 0
    assert log.damage == []
    assert taken


def test_only_what_is_synced_of_the_active_segment_is_checked(fs):
    log = open_log(fs, clean=False, recovery_point=0, high_watermark=0)
    log.flush()
    before = log.log_end_offset
    for _ in range(3):
        log.append(content_of(GOOD, SEGMENTS[0])[: batches_of(SEGMENTS[0])[1][0]], leader_epoch=9)
    active = log.segments.active
    position = active.position_of(before)
    fs.pwritev(active.fd, [b"\x55" * 40], position)
    assert log.scrub(active, lambda _: None).findings == 0
    assert log.damage == []
    log.abandon()
