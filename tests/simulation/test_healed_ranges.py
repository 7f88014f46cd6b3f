"""What a simulation holds healing to: each offset of a range that is not damaged any more is in the log."""

import pytest

from millrace.fs import read_file
from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import DamagedRange, Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import fs_with_folder
from millrace_support.simulation.simulated_healing import first_left_out

FOLDER, RECORDS, BATCHES = "/data/t-0", 3, 6
END = RECORDS * BATCHES
PATH = f"{FOLDER}/{0:020d}.log"


def log_without(gone: int | None, *, cleanup_policy: str = "delete", knows_of_damage: bool = False) -> Log:
    """Returns a log from whose bytes one batch was taken out, and that knows of it or does not."""
    fs = fs_with_folder(FOLDER)
    config = LogConfig(cleanup_policy=cleanup_policy)
    log = Log(fs, ManualClock(), FOLDER, TopicPartition("t", 0), config)
    for number in range(BATCHES):
        records = [NewRecord(b"%d" % number, key=b"key")] * RECORDS
        log.append(encode_batch(records), leader_epoch=0)
    log.close()
    content = read_file(fs, PATH)
    positions = [position for position, _ in walk(content)] + [len(content)]
    if gone is not None:
        fs.damage(PATH, lambda data: data.__delitem__(slice(positions[gone], positions[gone + 1])))
    log = Log(fs, ManualClock(), FOLDER, TopicPartition("t", 0), config, clean=True, recovery_point=END)
    if knows_of_damage and gone is not None:
        at = positions[gone]
        log.segments[0].add_damage(DamagedRange(gone * RECORDS, (gone + 1) * RECORDS, at, at, "missing"))
    return log


@pytest.mark.parametrize("start", range(END))
def test_a_range_that_has_all_its_offsets_is_healed(start: int) -> None:
    log = log_without(None)
    assert {first_left_out(log, DamagedRange(start, end, 0, 0, "")) for end in range(start, END + 1)} == {None}


@pytest.mark.parametrize("start", range(END))
@pytest.mark.parametrize("gone", range(1, BATCHES - 1))
def test_a_range_that_lacks_one_is_not(gone: int, start: int) -> None:
    log, first, behind = log_without(gone), gone * RECORDS, (gone + 1) * RECORDS
    lacking = max(start, first) if start < behind else None
    for end in range(start, END + 1):
        expected = lacking if lacking is not None and lacking < end else None
        assert first_left_out(log, DamagedRange(start, end, 0, 0, "")) == expected


@pytest.mark.parametrize("gone", range(1, BATCHES - 1))
def test_what_is_damaged_still_or_was_compacted_is_not_missed(gone: int) -> None:
    whole = DamagedRange(0, END, 0, 0, "")
    assert first_left_out(log_without(gone, knows_of_damage=True), whole) is None
    assert first_left_out(log_without(gone, cleanup_policy="compact"), whole) is None
