"""Where a log may leave out offsets, and that nobody is sent a gap or damage from there on.

The matrix: each kind of damage, in each place of a closed segment, met by a reader, by `verify` and by a follower.
"""

import itertools
from collections.abc import Callable

import pytest

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.fs import read_file
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace.wire.encoder import contents
from millrace_broker.storage import DamagedRange, DamagedRangeError, Log, LogConfig, TopicPartition
from millrace_broker.storage.recovery.offset_gaps import ANYWHERE, read_allowed
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
EPOCH = 3
BATCHES, RECORDS = 30, 4
END = BATCHES * RECORDS


def put(fs: CrashFileSystem, path: str, content: bytes) -> None:
    fd = fs.open(path, create=True)
    fs.truncate(fd, len(content))
    fs.pwritev(fd, [content], 0)
    fs.close(fd)


Flip = Callable[[bytearray, int, int], None]


def flipped(at: int) -> Flip:
    def flip(data: bytearray, start: int, end: int) -> None:
        data[(start if at >= 0 else end) + at] ^= 1

    return flip


def zeroed(data: bytearray, start: int, end: int) -> None:
    data[start:end] = bytes(end - start)


def swapped(data: bytearray, start: int, end: int) -> None:
    middle = (start + end) // 2
    width = middle - start
    data[start:middle], data[middle : middle + width] = data[middle : middle + width], data[start:middle]


DAMAGE: dict[str, Flip] = {
    "offset up": flipped(5),
    "offset": flipped(7),
    "length": flipped(10),
    "length by one": flipped(11),
    "leader epoch": flipped(12),
    "magic": flipped(16),
    "crc": flipped(18),
    "attributes": flipped(22),
    "record": flipped(-3),
    "zeroed": zeroed,
    "swapped": swapped,
}
COVERED_BY_NOTHING = {"leader epoch"}  # a batch with another epoch is as valid as it was


def open_log(fs: CrashFileSystem, *, cleanup_policy: str = "delete", **state: int | bool) -> Log:
    config = LogConfig(
        segment_bytes=900, index_interval_bytes=200, retention_ms=-1, cleanup_policy=cleanup_policy,
        file_delete_delay_ms=0,
    )  # fmt: skip
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config, **state)  # type: ignore[arg-type]


def batch(offset: int, count: int = RECORDS) -> bytes:
    records = [NewRecord(b"value %d" % each, timestamp_ms=NOW_MS) for each in range(offset, offset + count)]
    return bytes(encode_batch(records, base_offset=offset))


def filled(fs: CrashFileSystem) -> Log:
    log = open_log(fs)
    for number in range(BATCHES):
        log.append(batch(number * RECORDS), leader_epoch=0)
    log.flush()
    assert len(log.segments) > 3
    return log


def read_all(log: Log, max_bytes: int) -> tuple[list[int], int | None]:
    """The offsets that a reader gets from the log's start on, and the one at which it is refused."""
    found: list[int] = []
    while (offset := found[-1] + 1 if found else 0) < log.log_end_offset:
        try:
            data = log.read(offset, max_bytes, up_to_offset=log.log_end_offset)
        except CorruptRecordError:
            return found, offset
        found += [record.offset for record in decode_records(data)]
    return found, None


def damage(fs: CrashFileSystem, log: Log, segment: int, place: int, flip: Flip) -> tuple[int, int, bytes]:
    """Damages one batch of a closed segment; returns its offsets, and the file as it was."""
    path = log.segments[segment].path
    content = read_file(fs, path)
    position, header = list(walk(content))[place]
    data = bytearray(content)
    flip(data, position, position + header.size_bytes)
    put(fs, path, bytes(data))
    return header.base_offset, header.next_offset, content


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("place", [0, 2, -1])
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("is_reopened", [False, True])
def test_nobody_is_sent_damage_or_a_gap(kind: str, place: int, segment: int, max_bytes: int, is_reopened: bool) -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    if is_reopened:
        log.close()
    start, end, whole = damage(fs, log, segment, place, DAMAGE[kind])
    path = log.segments[segment].path
    if is_reopened:
        log = open_log(fs, clean=True, recovery_point=END)
    found, refused_at = read_all(log, max_bytes)
    if kind in COVERED_BY_NOTHING:
        assert found == list(range(END))
        return
    assert found == list(range(start))
    assert refused_at == start
    assert [(one.start_offset, one.end_offset) for _, one in log.damage] == [(start, end)]
    behind, _ = next(iter(walk(log.read(end, 1, up_to_offset=END))))
    assert behind == 0
    put(fs, path, whole)
    assert read_all(log, max_bytes) == (list(range(END)), None)
    assert log.damage == []


@pytest.mark.parametrize("place", [0, 2, -1])
@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind not in COVERED_BY_NOTHING])
def test_verify_names_what_a_read_would_meet(kind: str, place: int) -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    start, _, _ = damage(fs, log, 1, place, DAMAGE[kind])
    assert log.verify().findings
    assert read_all(log, 1 << 20) == (list(range(start)), start)


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
@pytest.mark.parametrize("left_of_batch", [0, 11, 40, HEADER_BYTES, -1])
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("read_at_once_bytes", [0, 1 << 20])
def test_nobody_is_sent_a_part_of_a_batch_where_a_file_is_cut_that_was_read_before(
    segment: int, place: int, left_of_batch: int, max_bytes: int, read_at_once_bytes: int
) -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    assert read_all(log, 1 << 20) == (list(range(END)), None)
    path = log.segments[segment].path
    whole = read_file(fs, path)
    position, header = list(walk(whole))[place]
    put(fs, path, whole[: position + left_of_batch % header.size_bytes])
    for offset in range(END):
        try:
            read = log.read_or_find(offset, max_bytes, up_to_offset=END, read_at_once_bytes=read_at_once_bytes)
        except CorruptRecordError:
            assert any(one.start_offset <= offset < one.end_offset for _, one in log.damage)
        else:
            records = [record.offset for record in decode_records(contents(read))]
            assert offset in records
            assert records == list(range(records[0], records[-1] + 1))
    assert log.damage[0][1].start_offset == header.base_offset
    put(fs, path, whole)
    assert read_all(log, max_bytes) == (list(range(END)), None)


@pytest.mark.parametrize("kept_behind", [0, 1, 3])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind not in COVERED_BY_NOTHING])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_log_is_cut_where_its_batches_end_and_not_where_a_damaged_header_says(
    is_known: bool, kind: str, place: int, kept_behind: int
) -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    start, end, _ = damage(fs, log, 1, place, DAMAGE[kind])
    if is_known:
        assert log.verify().findings
    cut_at = end + kept_behind * RECORDS
    assert log.truncate_to(cut_at)
    assert log.log_end_offset == cut_at
    log.append(batch(cut_at), leader_epoch=1)
    log.flush()
    for _ in range(2):
        assert log.log_end_offset == cut_at + RECORDS
        assert read_all(log, 1 << 20) == (list(range(start)), start)
        assert missing_in(log) == [(start, end)]
        log.abandon()
        log = open_log(fs, recovery_point=cut_at + RECORDS, high_watermark=cut_at)


def test_a_missing_batch_is_a_hole_of_its_own() -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    path = log.segments[1].path
    content = read_file(fs, path)
    (second, header), (third, _) = list(walk(content))[1:3]
    put(fs, path, content[:second] + content[third:])
    log = open_log(fs, clean=True, recovery_point=END)
    assert read_all(log, 1 << 20) == (list(range(header.base_offset)), header.base_offset)
    [(_, hole)] = log.damage
    assert (hole.start_offset, hole.end_offset, hole.is_hole) == (header.base_offset, header.next_offset, True)
    assert log.read(header.next_offset, 1, up_to_offset=END)


@pytest.mark.parametrize(("gapless_from", "is_taken"), [(None, True), (8, False), (11, False), (12, True), (99, True)])
@pytest.mark.parametrize("is_inside", [False, True])
def test_a_follower_takes_gaps_only_where_the_leader_may_have_some(
    gapless_from: int | None, is_taken: bool, is_inside: bool
) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    sent = batch(4) + batch(12)
    if not is_inside:
        log.append_as_follower(batch(0) + batch(4), leader_epoch=EPOCH, gapless_from=0)
        sent = batch(12)
    else:
        log.append_as_follower(batch(0), leader_epoch=EPOCH, gapless_from=0)
    end = log.log_end_offset
    if not is_taken:
        with pytest.raises(InvalidRecordError, match="leaves out offsets 8 to 11"):
            log.append_as_follower(sent, leader_epoch=EPOCH, gapless_from=gapless_from)
        assert (log.log_end_offset, log.gapless_from) == (end, 0)
        assert "offset-gaps" not in fs.listdir(FOLDER)
        return
    log.append_as_follower(sent, leader_epoch=EPOCH, gapless_from=gapless_from)
    assert (log.log_end_offset, log.gapless_from) == (16, 12)
    assert read_allowed(fs, FOLDER) == (ANYWHERE if gapless_from is None else gapless_from)
    assert read_all(log, 1 << 20)[1] is None


@pytest.mark.parametrize(
    ("content", "allowed", "gapless_from"),
    [
        (None, 0, 0),
        (b"version: 0\n", ANYWHERE, END),
        (b"version: 0\nbelow: 17\n", 17, 17),
        (b"version: 0\nbelow: x\n", ANYWHERE, END),
        (b"\xff", ANYWHERE, END),
        (b"", ANYWHERE, END),
    ],
)
def test_what_a_start_knows_of_gaps(content: bytes | None, allowed: int, gapless_from: int) -> None:
    fs = fs_with_folder(FOLDER)
    filled(fs).close()
    if content is not None:
        put(fs, f"{FOLDER}/offset-gaps", content)
    assert read_allowed(fs, FOLDER) == allowed
    assert open_log(fs, clean=True, recovery_point=END).gapless_from == gapless_from
    assert open_log(fs, clean=True, recovery_point=END, first_dirty_offset=20).gapless_from == max(20, gapless_from)


def test_a_topic_that_was_compacted_keeps_its_gaps_when_it_no_longer_is() -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, cleanup_policy="compact")
    log.append_as_follower(batch(0) + batch(8), leader_epoch=EPOCH)
    log.reconfigure(log.config)
    assert log.gapless_from == 12
    log.reconfigure(open_log(fs_with_folder(FOLDER)).config)
    log.append(batch(0), leader_epoch=EPOCH)
    assert log.gapless_from == 12
    assert read_all(log, 1 << 20)[1] is None


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_segment_that_is_lost_between_two_others_is_missing_and_one_that_was_compacted_away_is_not(
    is_deleted: bool,
) -> None:
    """Whatever may be left out there, an index that is left says that the segment was not deleted."""
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    lost = log.segments[1]
    begin, end = lost.base_offset, lost.next_offset
    log.close()
    put(fs, f"{FOLDER}/offset-gaps", b"version: 0\n")
    if is_deleted:
        fs.rename(lost.path, f"{lost.path}.deleted")
    else:
        fs.lose(lost.path)
    log = open_log(fs, clean=True, recovery_point=END, cleanup_policy="compact")
    missing = [(one.start_offset, one.end_offset) for _, one in log.damage]
    assert missing == ([] if is_deleted else [(begin, end)])


def lose_a_segment(fs: CrashFileSystem, log: Log) -> DamagedRange:
    lost = log.segments[1]
    log.close()
    fs.lose(lost.path)
    return DamagedRange(lost.base_offset, lost.next_offset, 0, 0, "")


def lose_a_batch(fs: CrashFileSystem, log: Log, segment: int = 1, place: int = 1) -> DamagedRange:
    path = log.segments[segment].path
    content = read_file(fs, path)
    position, header = list(walk(content))[place]
    put(fs, path, content[:position] + content[position + header.size_bytes :])
    assert log.set_damage_aside(log.segments[segment].base_offset)  # which names it, once the log is closed
    log.close()
    return DamagedRange(header.base_offset, header.next_offset, 0, 0, "")


def lose_a_batch_of_the_newest(fs: CrashFileSystem, log: Log) -> DamagedRange:
    return lose_a_batch(fs, log, -1, 0)


def missing_in(log: Log) -> list[tuple[int, int]]:
    return [(one.start_offset, one.end_offset) for _, one in log.damage]


@pytest.mark.parametrize("first_dirty_offset", [None, END])
@pytest.mark.parametrize("recovery_point", ["the hole's end", "the end of its segment", "the log's end"])
@pytest.mark.parametrize("lose", [lose_a_segment, lose_a_batch, lose_a_batch_of_the_newest])
def test_a_hole_that_is_known_is_not_taken_for_compacted_away_after_crashes(
    lose: Callable[[CrashFileSystem, Log], DamagedRange], recovery_point: str, first_dirty_offset: int | None
) -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    ends = {"the end of its segment": log.segments[1].next_offset, "the log's end": END}
    hole = lose(fs, log)
    point = ends.get(recovery_point, hole.end_offset)
    put(fs, f"{FOLDER}/offset-gaps", b"version: 0\n")
    open_log(fs, clean=True, recovery_point=END, cleanup_policy="compact").close()
    for _ in range(2):
        log = open_log(
            fs, recovery_point=point, high_watermark=point, first_dirty_offset=first_dirty_offset,
            cleanup_policy="compact",
        )  # fmt: skip
        assert missing_in(log) == [(hole.start_offset, hole.end_offset)]
        assert read_all(log, 1 << 20) == (list(range(hole.start_offset)), hole.start_offset)
        log.abandon()


def test_a_hole_that_was_filled_is_none_after_a_crash() -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    path = log.segments[1].path
    whole = read_file(fs, path)
    hole = lose_a_batch(fs, log)
    put(fs, f"{FOLDER}/offset-gaps", b"version: 0\n")
    opened = open_log(fs, recovery_point=END)
    assert missing_in(opened) == [(hole.start_offset, hole.end_offset)]
    opened.abandon()
    put(fs, path, whole)
    assert read_all(open_log(fs, recovery_point=END), 1 << 20) == (list(range(END)), None)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_hole_that_is_known_stays_where_its_log_is_cut(suffix: str) -> None:
    """An index that is damaged has the segment walked again."""
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    hole = lose_a_batch(fs, log)
    put(fs, f"{FOLDER}/offset-gaps", b"version: 0\n")
    log = open_log(fs, clean=True, recovery_point=END, cleanup_policy="compact")
    segment = log.segments[1]
    put(fs, segment.path.replace(".log", suffix), b"\xff" * 16)
    log.truncate_to(segment.next_offset - 1)
    assert missing_in(log) == [(hole.start_offset, hole.end_offset)]


@pytest.mark.parametrize("recovery_point", [0, 4, 12, 16])
@pytest.mark.parametrize("gapless_from", [None, 12, 13, 99])
@pytest.mark.parametrize("first_dirty_offset", [None, 4])
@pytest.mark.parametrize("count", [1, RECORDS])
def test_a_followers_gaps_stay_after_a_crash(
    recovery_point: int, gapless_from: int | None, first_dirty_offset: int | None, count: int
) -> None:
    """The batch behind the gap may end above the offset that the file names."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    sent = batch(0) + batch(4) + batch(12, count) + batch(12 + count)
    log.append_as_follower(sent, leader_epoch=EPOCH, gapless_from=gapless_from)
    log.flush()
    for disk in (fs.after_kill(), fs.after_cut(None)):
        opened = open_log(
            disk, recovery_point=recovery_point, high_watermark=recovery_point, first_dirty_offset=first_dirty_offset
        )
        assert (opened.log_end_offset, opened.damage) == (log.log_end_offset, [])
        assert read_all(opened, 1 << 20) == (read_all(log, 1 << 20)[0], None)


def test_a_cut_log_is_gapless_from_its_end_on() -> None:
    log = open_log(fs_with_folder(FOLDER))
    log.append_as_follower(batch(0) + batch(8) + batch(20), leader_epoch=EPOCH)
    assert log.gapless_from == 20
    log.truncate_to(12)
    assert log.gapless_from == 12


@pytest.mark.parametrize("offset", [3, 4, 9])
@pytest.mark.parametrize("up_to_offset", [10, 11])
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_read_that_ends_within_a_gap_or_batch_says_nothing_of_its_segment(
    offset: int, up_to_offset: int, max_bytes: int
) -> None:
    """The segment goes on at 10, and the next one begins at 14, above all gaps."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    log.append_as_follower(batch(0, 3), leader_epoch=EPOCH)
    log.append_as_follower(batch(10), leader_epoch=EPOCH)
    while len(log.segments) == 1:
        log.append_as_follower(batch(log.log_end_offset), leader_epoch=EPOCH)
    assert log.segments[1].base_offset > log.gapless_from == 10
    assert log.read(offset, max_bytes, up_to_offset=up_to_offset) == b""
    assert log.damage == []
    assert read_all(log, 1 << 20)[1] is None


def test_damaged_offsets_in_a_range_are_refused_by_their_range() -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    start, end, _ = damage(fs, log, 0, 1, DAMAGE["record"])
    for offset in itertools.chain(range(start, end), range(start, end)):
        with pytest.raises(DamagedRangeError) as raised:
            log.read(offset, 1, up_to_offset=END)
        assert raised.value.end_offset == end


def test_a_read_of_the_active_segment_ends_before_damage_that_is_known() -> None:
    fs = fs_with_folder(FOLDER)
    log = filled(fs)
    start, end, _ = damage(fs, log, -1, 0, DAMAGE["record"])
    assert log.read(start, 1, up_to_offset=END)  # what was appended is not checked again
    assert log.set_damage_aside(log.segments.active.base_offset)
    assert read_all(log, 1 << 20) == (list(range(start)), start)
    assert log.read(end, 1, up_to_offset=END)
