"""What a follower asks for before it has written what it has got, as a function of the answer alone."""

from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.fetch import PartitionFetched, PartitionKey
from millrace_broker.replication.follower_session import Asked, asked_ahead, last_whole_batch

ONE, OTHER = (PartitionKey(UUID(int=7), index) for index in range(2))
ASKED = {ONE: Asked(10, 2, 5, 0), OTHER: Asked(40, 3, 5, 0)}


def batch(base_offset, records=1, epoch=3):
    data = bytearray(encode_batch([NewRecord(b"value")] * records, base_offset=base_offset))
    data[12:16] = epoch.to_bytes(4, "big", signed=True)  # which the CRC does not cover
    return bytes(data)


def fetched(records=b"", high_watermark=1000, **changed):
    return PartitionFetched(0, ErrorCode.NONE, high_watermark, high_watermark, 0, records)._replace(**changed)


def test_what_follows_the_last_whole_batch_is_asked_for() -> None:
    records = batch(10, 5) + batch(15, 2, epoch=4) + batch(17, 9)[:-1]
    ahead = asked_ahead(ASKED, {ONE: fetched(records), OTHER: fetched()})
    assert ahead == {ONE: Asked(17, 4, 5, 0)}


def test_a_batch_without_an_epoch_leaves_the_epoch_that_was_told() -> None:
    assert asked_ahead(ASKED, {ONE: fetched(batch(10, 5, epoch=-1))}) == {ONE: Asked(15, 2, 5, 0)}


@pytest.mark.parametrize("high_watermark", [0, 14, 15])
def test_records_up_to_the_high_watermark_are_written_first(high_watermark) -> None:
    assert asked_ahead(ASKED, {ONE: fetched(batch(10, 5), high_watermark)}) == {}
    assert asked_ahead(ASKED, {ONE: fetched(batch(10, 5), 16)}) == {ONE: Asked(15, 3, 5, 0)}


@pytest.mark.parametrize(
    "other",
    [
        fetched(batch(40), 41),
        fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fetched(diverging_epoch=(2, 30)),
        fetched(batch(40)[:-1]),
        fetched(b"\0" * 100),
    ],
)
def test_one_partition_that_has_to_wait_holds_up_all(other) -> None:
    assert asked_ahead(ASKED, {ONE: fetched(batch(10)), OTHER: other}) == {}


def test_an_answer_without_records_asks_for_nothing() -> None:
    assert asked_ahead(ASKED, {ONE: fetched(), OTHER: fetched()}) == {}


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 2**31 - 1])
def test_a_length_that_can_not_be_ends_the_walk(length) -> None:
    data = batch(10) + batch(11)[:8] + length.to_bytes(4, "big", signed=True) + bytes(100)
    found = last_whole_batch(data)
    assert found is None or found.base_offset == 10
