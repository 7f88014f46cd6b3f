"""Where batches go on behind a damaged one: each bit of a batch is flipped, wherever it lies in an answer."""

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import HEADER_BYTES, walk
from millrace.records.compression import Codec
from millrace.records.damage import Rules, has_unread_end, intact, resumed
from millrace.records.message_set import encode_message_set
from millrace.records.record import NewRecord, Record, encode_batch, read_records

COUNT, RECORDS = 6, 10
LEADER_EPOCH = range(12, 16)  # which no reader looks at, and no checksum covers


def no_gap(gap):
    raise CorruptRecordError(f"the log has {gap}")


RULES = Rules(read_records, no_gap)


def batch(number, value=b"v", codec=Codec.NONE):
    return encode_batch([NewRecord(value)] * RECORDS, base_offset=number * RECORDS, codec=codec)


ANSWER = b"".join(batch(number, b"%d" % number, Codec(number % 5)) for number in range(COUNT))
PLACES = list(walk(ANSWER))


def flipped(at, bit):
    changed = bytearray(ANSWER)
    changed[at] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("place", range(COUNT))
def test_each_flipped_bit_damages_its_batch_alone(place):
    position, header = PLACES[place]
    for at in set(range(header.size_bytes)) - set(LEADER_EPOCH):
        for bit in range(8):
            answer = flipped(position + at, bit)
            found = intact(answer, 0, RULES)
            assert (found.end, found.next_offset) == (position, header.base_offset), (at, bit)
            following = resumed(answer[found.end :], found.next_offset, RULES)
            is_last = place == COUNT - 1
            assert following == (None if is_last else (header.size_bytes, header.next_offset)), (at, bit)


def test_two_damaged_batches_in_a_row_are_passed_over_together():
    position, header = PLACES[1]
    for at in (8, 11, 16, 21, HEADER_BYTES + 1):
        changed = bytearray(flipped(PLACES[2][0] + HEADER_BYTES + 1, 0))
        changed[position + at] ^= 1
        found = intact(bytes(changed), 0, RULES)
        behind = PLACES[3][0] - position
        assert (found.next_offset, resumed(bytes(changed)[position:], header.base_offset, RULES)) == (10, (behind, 30))


def test_a_batch_in_a_value_is_no_batch():
    forged = encode_batch([NewRecord(b"forged")], base_offset=12)
    answer = bytearray(batch(0) + batch(1, forged * 3) + batch(2))
    answer[len(batch(0)) + 9] ^= 1  # of the length
    found = intact(bytes(answer), 0, RULES)
    assert resumed(bytes(answer[found.end :]), found.next_offset, RULES) == (len(batch(1, forged * 3)), 20)


def test_of_two_that_overlap_the_one_that_fits_before_the_other_lies():
    lying = encode_batch([NewRecord(b"v")] * RECORDS, base_offset=1000)
    answer = batch(0) + lying + batch(2) + batch(3)
    found = intact(answer, 0, Rules(read_records, lambda _: None))
    assert found.next_offset == 10
    assert resumed(answer[found.end :], 10, RULES) == (len(lying), 20)


def test_of_two_that_overlap_either_may_lie():
    answer = batch(0) + batch(5) + batch(3) + batch(6)
    found = intact(answer, 0, Rules(read_records, lambda _: None))
    assert found.next_offset == 10
    assert resumed(answer[found.end :], 10, RULES) == (2 * len(batch(5)), 60)


def test_what_was_read_before_may_be_wrong():
    overlapping = encode_batch([NewRecord(b"v")] * RECORDS, base_offset=6)
    assert intact(overlapping + batch(2), 10, RULES, goes_on=True).is_settled
    assert not intact(overlapping + batch(3), 10, RULES, goes_on=True).is_settled


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_message_of_an_old_format_is_passed_over(magic):
    messages = [encode_message_set([Record(one, 5, b"k", b"value")], magic=magic) for one in range(3)]
    for at in range(len(messages[1])):
        changed = bytearray(b"".join(messages) + encode_batch([NewRecord(b"v")], base_offset=3))
        changed[len(messages[0]) + at] ^= 1
        found = intact(bytes(changed), 0, RULES)
        following = resumed(bytes(changed[found.end :]), found.next_offset, RULES)
        is_length = at in range(8, 12)
        assert is_length or (found.next_offset, following) == (1, (len(messages[1]), 2)), at


def test_what_the_rules_refuse_is_damaged():
    def refuse(data):
        if read_records(data)[0].value == b"1":
            raise CorruptRecordError("a bomb")

    rules = Rules(refuse, no_gap)
    found = intact(ANSWER, 0, rules)
    assert (found.next_offset, str(found.error)) == (10, "a bomb")
    assert resumed(ANSWER[found.end :], 10, rules) == (PLACES[1][1].size_bytes, 20)


@pytest.mark.parametrize(
    ("answer", "max_bytes", "expected"),
    [
        (b"", 100, False),
        (batch(0), 1000, False),
        (batch(0) + b"rest", 1000, True),
        (batch(0) + batch(1)[:-1], 1000, True),
        (batch(0) + batch(1)[:-1], 100, False),
    ],
)
def test_an_answer_that_ends_within_a_batch(answer, max_bytes, expected):
    assert has_unread_end(answer, max_bytes) is expected
