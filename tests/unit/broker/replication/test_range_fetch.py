"""Which fetched batches fit into what a damaged log is missing."""

import pytest

from millrace.errors import CorruptRecordError, InvalidRecordError, UnsupportedCodecError
from millrace.records.batch import HEADER, read_header
from millrace.records.checksum import crc32c
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.fetch import PartitionFetched
from millrace_broker.replication.range_fetch import Missing, committed, epochs_around, of_known_epoch, taken

MISSING = Missing(10, 10, 30, 2, 4, may_leave_out=False)
ACROSS = MISSING._replace(next_offset=15)  # the log begins at 15
COMPACTED = MISSING._replace(may_leave_out=True)


def batch(first, count=10, epoch=3):
    content = encode_batch([NewRecord(b"value %d" % n) for n in range(count)], base_offset=first)
    header = read_header(content)._replace(partition_leader_epoch=epoch)
    return HEADER.pack(*header) + content[HEADER.size :]


def answer(*batches, high_watermark=100):
    return PartitionFetched(0, 0, high_watermark, high_watermark, 0, b"".join(batches))


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


def in_codec(content, codec):
    """Returns a batch that claims a codec, with a CRC that matches."""
    header = read_header(content)._replace(attributes=codec)
    body = HEADER.pack(*header)[21:] + content[HEADER.size :]
    return HEADER.pack(*header._replace(crc=crc32c(body)))[:21] + body


FITS = {
    "exactly the range": (MISSING, answer(batch(10), batch(20)), 2, 30),
    "a part of it": (MISSING, answer(batch(10)), 1, 20),
    "more than it": (MISSING, answer(batch(10), batch(20), batch(30)), 2, 30),
    "a batch that is cut off": (MISSING, answer(batch(10), batch(20)[:-1]), 1, 20),
    "a batch behind that is damaged": (MISSING, answer(batch(10), flipped(batch(20), 70)), 1, 20),
    "a hole behind the first": (MISSING, answer(batch(10, 5), batch(20)), 1, 15),
    "an overlapping batch behind": (MISSING, answer(batch(10), batch(15, 15)), 1, 20),
    "across the log start offset": (ACROSS, answer(batch(10), batch(20)), 2, 30),
    "from the log start offset on": (ACROSS, answer(batch(15, 5), batch(20)), 2, 30),
    "the epochs around": (MISSING, answer(batch(10, epoch=2), batch(20, epoch=4)), 2, 30),
    "a gap of compaction": (COMPACTED, answer(batch(12, 3), batch(20)), 2, 30),
    "a gap up to the range's end": (COMPACTED, answer(batch(12, 3), batch(40)), 1, 30),
    "nothing left of the range": (COMPACTED, answer(batch(40)), 0, 30),
    "nothing behind it either": (COMPACTED, answer(), 0, 30),
}


@pytest.mark.parametrize(("missing", "fetched", "batches", "next_offset"), FITS.values(), ids=FITS)
def test_what_fits_is_taken(missing, fetched, batches, next_offset):
    found = taken(fetched, missing)
    assert found.next_offset == next_offset
    assert fetched.records.startswith(found.batches)
    sizes = [0]
    while sizes[-1] < len(found.batches):
        sizes.append(sizes[-1] + read_header(found.batches, sizes[-1]).size_bytes)
    assert len(sizes) - 1 == batches


REFUSED = {
    "nothing": (MISSING, answer(), InvalidRecordError, "nothing committed at offset 10"),
    "nothing committed so far": (COMPACTED, answer(high_watermark=29), InvalidRecordError, "nothing committed"),
    "a flipped record": (MISSING, answer(flipped(batch(10), 70)), CorruptRecordError, "CRC"),
    "an unknown codec": (MISSING, answer(in_codec(batch(10), 6)), UnsupportedCodecError, "6"),
    "a batch in front": (MISSING, answer(batch(0, 20)), InvalidRecordError, "offsets 0 to 19, where 10 to 29"),
    "a batch in front, across the log start offset": (ACROSS, answer(batch(5)), InvalidRecordError, "offsets 5 to 14"),
    "one that begins too early": (ACROSS, answer(batch(5, 15)), InvalidRecordError, "offsets 5 to 19"),
    "a hole": (MISSING, answer(batch(11, 9)), InvalidRecordError, "offsets 11 to 19"),
    "a batch that is too long": (MISSING, answer(batch(10, 21)), InvalidRecordError, "offsets 10 to 30"),
    "too long, compacted": (COMPACTED, answer(batch(12, 19)), InvalidRecordError, "offsets 12 to 30"),
    "an older epoch": (MISSING, answer(batch(10, epoch=1)), InvalidRecordError, "leader epoch 1"),
    "a newer epoch": (MISSING, answer(batch(10, epoch=5)), InvalidRecordError, "are of 2 to 4"),
}


@pytest.mark.parametrize(("missing", "fetched", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(missing, fetched, error, words):
    with pytest.raises(error, match=words):
        taken(fetched, missing)


ENTRIES = ((2, 0), (3, 15), (6, 25))
KNOWN = {
    "in the epoch of its beginning": (MISSING._replace(end_offset=14), ENTRIES, (14, 2)),
    "up to where that epoch ends": (MISSING, ENTRIES, (15, 2)),
    "from an epoch's first offset on": (MISSING._replace(next_offset=15), ENTRIES, (25, 3)),
    "the newest epoch, up to the log's end": (MISSING._replace(next_offset=26, end_offset=90), ENTRIES, (40, 6)),
    "of an unknown epoch": (MISSING, ENTRIES[1:], None),
    "of a log without epochs": (MISSING, (), None),
    "of a compacted log": (COMPACTED, ENTRIES, None),
}


@pytest.mark.parametrize(("missing", "entries", "end_and_epoch"), KNOWN.values(), ids=KNOWN)
def test_what_may_not_be_committed_is_of_the_epoch_that_the_log_has_had(missing, entries, end_and_epoch):
    found = of_known_epoch(missing, entries, 40)
    assert (found and (found.end_offset, found.least_epoch)) == end_and_epoch
    assert found is None or found == missing._replace(
        end_offset=found.end_offset, least_epoch=found.least_epoch, largest_epoch=found.least_epoch
    )


@pytest.mark.parametrize(
    ("high_watermark", "end"), [(0, None), (9, None), (10, None), (11, 11), (29, 29), (30, 30), (99, 30)]
)
@pytest.mark.parametrize("missing", [MISSING, COMPACTED], ids=["a log", "a compacted log"])
def test_what_is_committed_ends_at_the_high_watermark(missing, high_watermark, end):
    assert committed(missing, high_watermark) == (end and missing._replace(end_offset=end))


NEWEST = 9, 40  # the present leader's epoch, and the log's end
AROUND = {
    "known epochs": (ENTRIES, 10, 20, False, (2, 3)),
    "up to the first offset of an epoch": (ENTRIES, 10, 25, False, (2, 6)),
    "within one epoch": (ENTRIES, 16, 20, False, (3, 3)),
    "from the log's beginning on": (ENTRIES, 0, 20, False, (-1, 3)),
    "up to the log's end": (ENTRIES, 26, 40, False, (6, 9)),
    "beyond the log's end": (ENTRIES, 26, 99, False, (6, 9)),
    "a log without epochs": ((), 10, 20, False, (-1, 9)),
    "epochs that begin at the end of what is missing": (((6, 20),), 10, 20, False, (-1, 6)),
    "epochs that begin behind it": (((6, 25),), 10, 20, False, (-1, 6)),
    "a compacted log whose next batch is of another epoch": (((0, 0), (6, 25)), 10, 20, True, (0, 6)),
    "the next epochs of a compacted log": (ENTRIES, 10, 20, True, (2, 6)),
    "a compacted log without another epoch behind": (ENTRIES, 26, 30, True, (6, 6)),
    "up to the end of a compacted log": (ENTRIES, 26, 40, True, (6, 9)),
}


@pytest.mark.parametrize(("entries", "start", "end", "may_leave_out", "epochs"), AROUND.values(), ids=AROUND)
def test_the_leader_epochs_around_what_is_missing(entries, start, end, may_leave_out, epochs):
    assert epochs_around(entries, start, end, newest=NEWEST, may_leave_out=may_leave_out) == epochs
