"""Damage that nobody knew of hides one batch from a log that opens, and not those behind it; healed, it is known, too.

The batch's header can't be read, or says something else. The files of leader epochs and producers are gone, so a start
reads all headers.
"""

import pytest

from millrace.records.batch import BatchHeader, walk
from millrace.records.record import BatchProducer, encode_batch
from millrace_broker.storage import Log
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.damaged_log import BATCHES, END, FOLDER, RECORDS, content_of, flip, open_log, values, write

LENGTH, MAGIC, LAST_OFFSET_DELTA, COUNT = 8, 16, 23, 57
NOW_MS = ManualClock().now_ms()
EPOCH_BATCHES, PRODUCER_BATCHES = 9, 7
UNREADABLE = {"a long length": (LENGTH, 1), "another magic": (MAGIC, 1), "a count below 0": (COUNT, 7)}
UNREADABLE |= {"no format": (MAGIC, 6), "a length below 0": (LENGTH, 7), "a delta below 0": (LAST_OFFSET_DELTA, 7)}
CRC, RECORDS_AT = 17, 61
WRONG = {f"byte {at} of the header": (at, at % 8) for at in range(CRC, RECORDS_AT)} | {"a record": (RECORDS_AT + 2, 0)}


def filled(epoch_batches: int = EPOCH_BATCHES, epoch_step: int = 1) -> CrashFileSystem:
    """A log whose batches are of several epochs, and each seventh of another producer."""
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    log = open_log(fs, clean=False, recovery_point=0, high_watermark=0)
    for number in range(BATCHES):
        producer = BatchProducer(number // PRODUCER_BATCHES, 0, number % PRODUCER_BATCHES * RECORDS)
        records = [one._replace(timestamp_ms=NOW_MS) for one in values(number * RECORDS)]  # producers expire
        log.append(encode_batch(records, producer=producer), leader_epoch=number // epoch_batches * epoch_step)
    log.close()
    for name in fs.listdir(FOLDER):
        if name.endswith((".snapshot", "-checkpoint")):
            fs.unlink(f"{FOLDER}/{name}")
    return fs


GOOD = filled()
CLOSED = sorted(name for name in GOOD.listdir(FOLDER) if name.endswith(".log"))[:-1]
WHOLE, CUT = (open_log(GOOD.after_kill(), clean=True) for _ in range(2))
CUT.truncate_to(END - RECORDS)


def known(log: Log, hidden: BatchHeader | None = None) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Returns the epochs, and the last offset of each producer; those of all batches but one without a log."""
    if hidden is None:
        return list(log.leader_epochs.entries), {key: one.last_offset for key, one in log.producers.entries.items()}
    epochs: dict[int, int] = {}
    producers: dict[int, int] = {}
    for number in range(BATCHES):
        if number * RECORDS != hidden.base_offset:
            epochs.setdefault(number // EPOCH_BATCHES, number * RECORDS)
            producers[number // PRODUCER_BATCHES] = number * RECORDS + RECORDS - 1
    return sorted(epochs.items()), producers


def test_there_is_something_to_hide() -> None:
    assert len(CLOSED) > 4
    assert known(WHOLE)[0] == [
        (number // EPOCH_BATCHES, number * RECORDS) for number in range(0, BATCHES, EPOCH_BATCHES)
    ]
    assert len(known(WHOLE)[1]) == BATCHES / PRODUCER_BATCHES


def heal(log: Log, whole: bytes, position: int, header: BatchHeader) -> None:
    """Heals the one damaged batch of a log, which is at a position of its segment's whole content."""
    assert [(one.start_offset, one.end_offset) for _, one in log.damage] == [(header.base_offset, header.next_offset)]
    (segment,) = log.healing.damaged_segments()
    (damaged,) = segment.damage
    with log.healing.healing(segment) as new:
        new.copy_up_to(damaged.position)
        new.put(whole[position : position + header.size_bytes])
        new.end(damaged, damaged.end_offset)
        assert log.healing.put_in_place(segment, new, log.truncations)
    log.healing.reread_producers()


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("way", [*UNREADABLE, *WRONG])
@pytest.mark.usefixtures("without_logs")
def test_a_start_reads_past_damage_and_what_heals_is_read(name: str, way: str) -> None:
    whole = content_of(GOOD, name)
    for position, header in walk(whole):
        fs = GOOD.after_kill()
        at, bit = (UNREADABLE | WRONG)[way]
        write(fs, name, flip(whole, position + at, bit))
        log = open_log(fs, clean=True)
        assert known(log)[1] == known(log, hidden=header)[1]
        assert way in WRONG or known(log) == known(log, hidden=header)
        heal(log, whole, position, header)
        assert known(log) == known(WHOLE)
        assert log.log_end_offset == END
        log.abandon()


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("way", WRONG)
@pytest.mark.usefixtures("without_logs")
def test_what_a_cut_has_taken_from_a_wrong_header_is_right_once_that_is_healed(name: str, way: str) -> None:
    whole = content_of(GOOD, name)
    for position, header in walk(whole):
        fs = GOOD.after_kill()
        log = open_log(fs, clean=True)
        at, bit = WRONG[way]
        write(fs, name, flip(whole, position + at, bit))
        assert log.truncate_to(END - RECORDS)
        for segment in log.segments:
            log.scrub(segment, lambda _: None)
        heal(log, whole, position, header)
        assert known(log) == known(CUT)
        log.abandon()


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("at", range(LENGTH))
@pytest.mark.usefixtures("without_logs")
def test_a_wrong_base_offset_says_nothing_for_good(name: str, at: int) -> None:
    """No checksum covers it, so the start takes the batch for one of other offsets, until its segment is scrubbed."""
    whole = content_of(GOOD, name)
    for position, header in walk(whole):
        for bit in range(8):
            fs = GOOD.after_kill()
            write(fs, name, flip(whole, position + at, bit))
            log = open_log(fs, clean=True)
            for segment in log.segments:
                log.scrub(segment, lambda _: None)
            heal(log, whole, position, header)
            assert known(log) == known(WHOLE), (position, bit)
            log.abandon()


@pytest.mark.parametrize("number", [0, 1, 8, 9])
def test_an_entry_that_healed_batches_contradict_is_wrong(number: int) -> None:
    """Of the two batches of an epoch one is hidden, so that they could not contradict the file at the start."""
    good = filled(epoch_batches=2, epoch_step=10)
    name = CLOSED[0]
    whole = content_of(good, name)
    position, header = list(walk(whole))[number]
    entries = open_log(good.after_kill(), clean=True).leader_epochs.entries
    for wrong in set(range(-9, 10)) - {0}:
        fs = good.after_kill()
        lines = [f"{epoch + wrong * (slot == number // 2)} {offset}" for slot, (epoch, offset) in enumerate(entries)]
        write(fs, "leader-epoch-checkpoint", "\n".join(["0", str(len(lines)), *lines, ""]).encode())
        write(fs, name, flip(whole, position + MAGIC, 1))
        log = open_log(fs, clean=True)
        heal(log, whole, position, header)
        assert log.leader_epochs.entries == entries, (wrong, lines[:6])
        log.abandon()
