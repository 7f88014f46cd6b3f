"""A flipped bit in a log's leader epochs costs nothing: they are those of the batches, wherever the file lies.

Where the first of them begins is nowhere else, as it is raised with the log's start, and decides nothing.
"""

import pytest

from millrace.records.record import encode_batch
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT
from millrace_support.damaged_log import END, FOLDER, GOOD, RECORDS, content_of, flip, open_log, values, write

pytestmark = pytest.mark.usefixtures("without_logs")
FILE = content_of(GOOD, LEADER_EPOCH_CHECKPOINT)
LAST = END - RECORDS  # the last batch
ENTRIES = open_log(GOOD.after_kill(), clean=True).leader_epochs.entries


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after kill -9"])
@pytest.mark.parametrize("at", range(len(FILE)))
def test_a_flipped_bit(at, clean):
    assert len(ENTRIES) == 4
    for bit in range(8):
        fs = GOOD.after_kill()
        write(fs, LEADER_EPOCH_CHECKPOINT, flip(FILE, at, bit))
        log = open_log(fs, clean=clean)
        first, *others = log.leader_epochs.entries
        assert (first[0], *others) == (ENTRIES[0][0], *ENTRIES[1:]), f"bit {bit}: {flip(FILE, at, bit)!r}"


@pytest.mark.parametrize("content", [None, b"", FILE[:9], b"0\n0\n", b"0\n1\n2 102\n"])
def test_a_file_that_is_gone_or_cut_or_lacks_entries(content):
    fs = GOOD.after_kill()
    if content is None:
        fs.unlink(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}")
    else:
        write(fs, LEADER_EPOCH_CHECKPOINT, content)
    log = open_log(fs, clean=True)
    assert log.leader_epochs.entries == ENTRIES
    assert log.append(encode_batch(values(END, RECORDS)), leader_epoch=9).first_offset == END
    assert log.leader_epochs.entries == (*ENTRIES, (9, END))


def test_an_epoch_between_two_batches_of_another_one():
    fs = GOOD.after_kill()
    write(fs, LEADER_EPOCH_CHECKPOINT, b"0\n1\n8 3\n")
    assert open_log(fs, clean=True).leader_epochs.entries == ENTRIES


def test_what_one_batch_can_not_decide_is_compared_when_a_leader_contradicts():
    fs = GOOD.after_kill()
    log = open_log(fs, clean=True)
    log.append(encode_batch(values(END, RECORDS)), leader_epoch=9)
    log.close()
    entries = log.leader_epochs.entries
    write(fs, LEADER_EPOCH_CHECKPOINT, content_of(fs, LEADER_EPOCH_CHECKPOINT).replace(b"\n9 ", b"\n77 "))
    log = open_log(fs, clean=True, recovery_point=END + RECORDS, high_watermark=END + RECORDS)
    assert log.leader_epochs.entries == (*entries[:-1], (77, END))
    for _ in range(2):
        log.healing.compare_leader_epochs()
        assert log.leader_epochs.entries == entries


def test_entries_below_the_log_start_offset_are_no_contradiction():
    log = open_log(GOOD.after_kill(), clean=True, log_start_offset=LAST)
    assert log.leader_epochs.entries == ((ENTRIES[-1][0], LAST),)
