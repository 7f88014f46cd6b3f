"""An index of aborted transactions that has changed, or is gone, is made again by a start, and is not read before."""

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import Log
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.damaged_log import FOLDER, content_of, flip, open_log, write
from millrace_support.markers import append_marker

TRANSACTIONS = 24
NOTES = "txnindex-checksums"


def append_transactions(log: Log, producer_ids) -> None:
    """Appends a transaction of each producer, of which all but every third one is aborted."""
    for producer_id in producer_ids:
        records = [NewRecord(b"%d" % producer_id * 50)] * 2
        batch = encode_batch(records, producer=BatchProducer(producer_id, 0, 0), flags=TRANSACTIONAL_FLAG)
        log.append(batch, leader_epoch=0)
        kind = ControlType.COMMIT if producer_id % 3 == 0 else ControlType.ABORT
        append_marker(log, EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, leader_epoch=0)


def filled() -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    log = open_log(fs, clean=False, recovery_point=0, high_watermark=0)
    append_transactions(log, range(TRANSACTIONS))
    log.close()
    return fs


def opened(fs: CrashFileSystem, *, clean: bool, recovery_point: int = 3 * TRANSACTIONS) -> Log:
    return open_log(fs, clean=clean, recovery_point=recovery_point, high_watermark=recovery_point)


def aborted(log: Log):
    return log.aborted_transactions(0, log.log_end_offset)


GOOD = filled()
INDEXES = sorted(name for name in GOOD.listdir(FOLDER) if name.endswith(".txnindex"))
EXPECTED = aborted(opened(GOOD.after_kill(), clean=True))
ENTRY_BYTES = 34


def test_there_is_something_to_damage():
    assert [one.producer_id for one in EXPECTED] == [one for one in range(TRANSACTIONS) if one % 3]
    assert len(INDEXES) > 3


def deleted(fs, name):
    fs.unlink(f"{FOLDER}/{name}")


def cut(fs, name):
    write(fs, name, content_of(fs, name)[:-ENTRY_BYTES])


def emptied(fs, name):
    write(fs, name, b"")


def repeated(fs, name):
    write(fs, name, content_of(fs, name) * 2)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [deleted, cut, emptied, repeated])
@pytest.mark.parametrize("name", [INDEXES[0], INDEXES[2], INDEXES[-1]])
def test_a_start_makes_an_index_again_that_is_not_as_it_was_written(name, damage, clean, caplog):
    fs = GOOD.after_kill()
    damage(fs, name)
    log = opened(fs, clean=clean)
    assert aborted(log) == EXPECTED
    assert clean <= (f"{FOLDER}/{name} is not as it was written" in caplog.text)
    log.close()
    assert content_of(fs, name) == content_of(GOOD, name)


@pytest.mark.parametrize("clean", [True, False])
def test_a_flip_of_any_byte_is_noticed_by_a_start(clean):
    for byte in range(ENTRY_BYTES):
        fs = GOOD.after_kill()
        write(fs, INDEXES[1], flip(content_of(fs, INDEXES[1]), byte, byte % 8))
        assert aborted(opened(fs, clean=clean)) == EXPECTED, byte


@pytest.mark.parametrize("damage", [cut, emptied, lambda fs, name: write(fs, name, flip(content_of(fs, name), 9, 3))])
def test_an_index_that_changes_while_the_log_is_open_is_not_read(damage):
    fs = GOOD.after_kill()
    log = opened(fs, clean=True)
    damage(fs, INDEXES[1])
    with pytest.raises(CorruptRecordError, match="is not as it was written"):
        aborted(log)
    log.close()
    assert aborted(opened(fs, clean=True)) == EXPECTED


@pytest.mark.parametrize("damage", [cut, emptied, lambda fs, name: write(fs, name, flip(content_of(fs, name), 9, 3))])
def test_healing_makes_an_index_again_that_a_read_has_found_changed(damage):
    fs = GOOD.after_kill()
    log = opened(fs, clean=True)
    assert not log.healing.is_due
    for name in (INDEXES[1], INDEXES[3]):
        damage(fs, name)
        with pytest.raises(CorruptRecordError):
            aborted(log)
        assert log.healing.is_due
        log.healing.reread_producers()
        assert (aborted(log), log.healing.is_due) == (EXPECTED, False)
        assert content_of(fs, name) == content_of(GOOD, name)


@pytest.mark.parametrize("damage", [cut, emptied, lambda fs, name: write(fs, name, flip(content_of(fs, name), 9, 3))])
def test_a_log_is_cut_whole_where_an_index_has_changed(damage):
    fs = GOOD.after_kill()
    log = opened(fs, clean=True)
    damage(fs, INDEXES[-1])
    segment = max(one for one in (s.base_offset for s in log.segments) if f"{one:020d}.txnindex" == INDEXES[-1])
    cut_at = segment + 2
    log.truncate_to(cut_at)
    ends = [log.log_end_offset, log.segments[-1].base_offset, log.segments[-2].next_offset]
    assert ends == [cut_at] * 3
    with pytest.raises(CorruptRecordError):
        aborted(log)
    log.healing.reread_producers()
    assert aborted(log) == [one for one in EXPECTED if one.last_offset < log.log_end_offset]
    log.close()
    assert aborted(opened(fs, clean=True)) == [one for one in EXPECTED if one.last_offset < cut_at]


def test_the_scrubber_finds_an_index_that_has_changed():
    fs = GOOD.after_kill()
    log = opened(fs, clean=True)
    emptied(fs, INDEXES[1])
    [segment] = [one for one in log.segments if one.path.endswith(INDEXES[1].replace(".txnindex", ".log"))]
    assert log.scrub(segment, lambda _: None).is_left
    assert log.healing.is_due
    log.healing.reread_producers()
    assert log.scrub(segment, lambda _: None).findings == 0
    assert aborted(log) == EXPECTED


def test_a_healed_segment_is_not_read_with_an_index_that_has_changed():
    fs = GOOD.after_kill()
    name = INDEXES[1].replace(".txnindex", ".log")
    original = content_of(fs, name)
    write(fs, name, flip(original, 75, 2))
    log = opened(fs, clean=True)
    assert log.verify().findings
    emptied(fs, INDEXES[1])
    [segment] = log.healing.damaged_segments()
    [damaged] = segment.damage
    with log.healing.healing(segment) as new:
        new.copy_up_to(damaged.position)
        new.put(original[damaged.position : damaged.end_position])
        new.end(damaged, damaged.end_offset)
        assert log.healing.put_in_place(segment, new, log.truncations)
    with pytest.raises(CorruptRecordError):
        aborted(log)
    log.healing.reread_producers()
    assert (aborted(log), log.healing.is_due) == (EXPECTED, False)
    log.close()
    assert (content_of(fs, name), content_of(fs, INDEXES[1])) == (original, content_of(GOOD, INDEXES[1]))


def test_segments_closed_after_the_checksums_were_written_are_right_after_a_crash():
    fs = GOOD.after_kill()
    log = opened(fs, clean=True)
    append_transactions(log, range(100, 130))
    log.flush()
    expected, end = aborted(log), log.log_end_offset
    for recovery_point in (end, 3 * TRANSACTIONS + 1):
        again = fs.after_kill()
        assert aborted(opened(again, clean=False, recovery_point=recovery_point)) == expected


def test_checksums_that_are_damaged_or_missing_have_the_indexes_trusted(caplog):
    content = content_of(GOOD, NOTES)
    for byte in range(0, len(content), 5):
        fs = GOOD.after_kill()
        write(fs, NOTES, flip(content, byte, byte % 8))
        log = opened(fs, clean=True)
        assert aborted(log) == EXPECTED
        log.close()
        assert content_of(fs, NOTES) == content
    assert f"{NOTES} is damaged" in caplog.text
    fs = GOOD.after_kill()
    fs.unlink(f"{FOLDER}/{NOTES}")
    assert aborted(opened(fs, clean=True)) == EXPECTED
