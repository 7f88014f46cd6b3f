"""A log that changed its format: where one ends and the other begins, and what comes after it."""

import pytest

from millrace.records.batch import MAGIC_V2
from millrace.records.compression import Codec
from millrace.records.message_set import MAGIC_V1, encode_message_set, first_offset, runs
from millrace.records.record import NewRecord, Record, encode_batch

RECORDS = [Record(7 + n, 5, b"k", b"v") for n in range(3)]
V0 = encode_message_set(RECORDS[:2], magic=0)
V1 = encode_message_set(RECORDS, magic=1, codec=Codec.GZIP)
V2 = encode_batch([NewRecord(b"v")] * 4, base_offset=20)


def split(buffer):
    return [(magic, bytes(run)) for magic, run in runs(buffer)]


def test_neighbours_of_one_format_stay_together():
    assert split(V0 + V1 + V2 + V2) == [(MAGIC_V1, V0 + V1), (MAGIC_V2, V2 + V2)]
    assert split(V2 + V1) == [(MAGIC_V2, V2), (MAGIC_V1, V1)]
    assert split(b"") == []


@pytest.mark.parametrize("tail", [b"\x00" * 5, V2[:40], V1[:30]])
def test_a_cut_tail_belongs_to_some_run(tail):
    assert b"".join(run for _, run in split(V2 + tail)) == V2 + tail


def test_a_size_that_can_t_be_ends_the_split():
    broken = V2[:8] + bytes(4) + V2[12:]
    assert split(V2 + broken + V1) == [(MAGIC_V2, V2 + broken + V1)]


def test_the_first_offset_is_the_one_stated():
    assert (first_offset(V0), first_offset(V2)) == (7, 20)
