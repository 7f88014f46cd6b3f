"""Whether two logs hold the same records at an offset, by content."""

from uuid import UUID

import pytest

from millrace.records.batch import TRANSACTIONAL_FLAG, placed, read_header
from millrace.records.compression import Codec
from millrace.records.control import encode_mirror_end
from millrace.records.record import NewRecord, Record, encode_batch, encode_records
from millrace_pipelines.mirror.same_records import Sameness, compared

SAME, DIFFERENT, UNKNOWN = Sameness.SAME, Sameness.DIFFERENT, Sameness.UNKNOWN


def batch(base, values, codec=Codec.NONE, flags=0):
    records = [NewRecord(value, b"k", 1000 + base + index) for index, value in enumerate(values)]
    return encode_batch(records, base_offset=base, codec=codec, flags=flags)


def left(base, length, values):
    """Returns a batch of `length` offsets of which compaction has left those in `values` (delta: value)."""
    header = read_header(batch(base, [b""] * length))
    return encode_records(
        header, [Record(base + delta, 1000 + base + delta, b"k", value) for delta, value in values.items()]
    )


def of_epoch(data, epoch):
    header = read_header(data)
    return placed(header, header.base_offset, epoch) + data[16:]


def mirror_end(offset):
    data = encode_mirror_end(UUID(int=7), timestamp_ms=1000)
    return placed(read_header(data), offset, 0) + data[16:]


ABC = batch(10, [b"a", b"b", b"c"])
CASES = {
    "the same bytes": (ABC, ABC, 12, False, SAME),
    "another leader epoch": (ABC, of_epoch(ABC, 7), 12, False, SAME),
    "another value": (ABC, batch(10, [b"a", b"b", b"x"]), 12, False, DIFFERENT),
    "another codec, the same records": (ABC, batch(10, [b"a", b"b", b"c"], Codec.GZIP), 12, False, SAME),
    "other batches of the same records": (ABC, batch(10, [b"a"]) + batch(11, [b"b", b"c"]), 12, False, SAME),
    "a lost record": (ABC, left(10, 3, {0: b"a", 2: b"c"}), 12, False, DIFFERENT),
    "a compacted record": (ABC, left(10, 3, {0: b"a", 2: b"c"}), 12, True, SAME),
    "compacted at the target": (left(10, 3, {2: b"c"}), ABC, 12, True, SAME),
    "compacted, but another value": (left(10, 3, {2: b"c"}), batch(10, [b"a", b"b", b"x"]), 12, True, DIFFERENT),
    "the source's batch was removed": (ABC, batch(13, [b"d"]), 12, True, SAME),
    "it is not there, without compaction": (ABC, batch(13, [b"d"]), 12, False, DIFFERENT),
    "no batch yet": (ABC, b"", 12, False, UNKNOWN),
    "an end of mirroring that came from the source": (mirror_end(12), mirror_end(12), 12, True, SAME),
    "an end of mirroring, and the source goes on": (mirror_end(12), batch(12, [b"d"]), 12, False, DIFFERENT),
    "an end of mirroring, and the source has compacted": (mirror_end(12), batch(13, [b"d"]), 12, True, DIFFERENT),
    "of a transaction or not": (ABC, batch(10, [b"a", b"b", b"c"], flags=TRANSACTIONAL_FLAG), 12, False, SAME),
}


@pytest.mark.parametrize("name", CASES)
def test_records_decide(name):
    ours, theirs, at, is_compacted, expected = CASES[name]
    assert compared(ours, theirs, at, is_compacted=is_compacted) is expected
