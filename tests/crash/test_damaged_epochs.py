"""A flipped bit in a log's leader epochs costs nothing: they are those of the batches, wherever the file lies.

Where the first of them begins is nowhere else, as it is raised with the log's start, and decides nothing.
"""

import pytest

from millrace.records.record import encode_batch
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT
from millrace_support.damaged_log import END, FOLDER, GOOD, RECORDS, content_of, flip, open_log, values, write

pytestmark = pytest.mark.usefixtures("without_logs")
FILE = content_of(GOOD, LEADER_EPOCH_CHECKPOINT)
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


@pytest.mark.parametrize("content", [None, b"", FILE[:9]])
def test_a_file_that_is_gone_or_cut(content):
    fs = GOOD.after_kill()
    if content is None:
        fs.unlink(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}")
    else:
        write(fs, LEADER_EPOCH_CHECKPOINT, content)
    log = open_log(fs, clean=True)
    assert log.append(encode_batch(values(END, RECORDS)), leader_epoch=9).first_offset == END
    assert log.leader_epochs.entries[-1] == (9, END)
    assert content in {None, b""} or log.leader_epochs.entries[:-1] == ENTRIES
