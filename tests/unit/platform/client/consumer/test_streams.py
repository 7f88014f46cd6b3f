"""Leases, streams that go by them, and registrations."""

import pytest

from millrace.client.consumer.assignment import (
    Partition,
    Pattern,
    Registration,
    Thread,
    decode_registration,
    encode_registration,
    filter_expression,
)
from millrace.client.consumer.ownership import NANOSECONDS_PER_MS, Kind, Lease, Ownership, lease_clock_ns
from millrace.client.consumer.streams import Chunk, ConsumerStream, Feed
from millrace.errors import ConsumerTimeoutError, InvalidConfigError, ZooKeeperError
from millrace.records.record import Record

SESSION, OTHER = 7, 8
LONG_MS = 3_600_000


class Reading:
    """A stream with one partition of five records in its queue."""

    def __init__(self):
        self.events = []
        self.lease = Lease()
        self.lease.renew(SESSION, lease_clock_ns(), LONG_MS)
        self.stream = ConsumerStream(
            "s", self.lease, self.events.append, max_chunks=2, timeout_ms=10, on_room=lambda: None
        )
        ownership = Ownership(Thread("m", 0), token=5, session_id=SESSION)
        self.feed = Feed(Partition("t", 0), ownership, self.stream, 0)
        records = [Record(offset, 1, None, b"v") for offset in range(5)]
        self.stream.put(Chunk(self.feed, records, 9))


def test_a_lease_counts_from_the_question_and_for_its_session_alone():
    now_ns = [0]
    lease = Lease(lambda: now_ns[0])
    assert lease.holding_ns(0) is None
    lease.renew(SESSION, 100, 6_000)
    ends_ns = 100 + 4_000 * NANOSECONDS_PER_MS
    now_ns[0] = ends_ns - 1
    assert lease.holding_ns(SESSION) == ends_ns - 1
    assert lease.holding_ns(OTHER) is None
    now_ns[0] = ends_ns
    assert lease.holding_ns(SESSION) is None


def test_nothing_is_handed_out_once_the_lease_has_ended():
    reading = Reading()
    assert next(reading.stream).offset == 0
    reading.lease.renew(SESSION, lease_clock_ns() - 2 * LONG_MS * NANOSECONDS_PER_MS, LONG_MS)
    with pytest.raises(ConsumerTimeoutError):
        next(reading.stream)
    reading.lease.renew(OTHER, lease_clock_ns(), LONG_MS)
    with pytest.raises(ConsumerTimeoutError):
        next(reading.stream)
    reading.lease.renew(SESSION, lease_clock_ns(), LONG_MS)
    assert [next(reading.stream).offset for _ in range(4)] == [1, 2, 3, 4]
    assert [(event.kind, event.offset, event.token) for event in reading.events] == [
        (Kind.HAND_OUT, offset, 5) for offset in range(5)
    ]


def test_nothing_is_handed_out_of_a_partition_that_was_given_up():
    reading = Reading()
    assert next(reading.stream).offset == 0
    reading.feed.stop()
    with pytest.raises(ConsumerTimeoutError):
        next(reading.stream)
    assert (reading.feed.handed, reading.feed.done) == (1, 0)


def test_what_is_done_and_what_was_handed_out():
    reading = Reading()
    next(reading.stream)
    next(reading.stream)
    assert reading.feed.to_commit(with_last=False) == 1
    assert reading.feed.to_commit(with_last=True) == 2
    reading.feed.committed = 2
    assert reading.feed.to_commit(with_last=False) is None
    for _ in range(3):
        next(reading.stream)
    with pytest.raises(ConsumerTimeoutError):
        next(reading.stream)
    assert reading.feed.to_commit(with_last=False) == 9  # behind the records there was a marker


def test_a_closed_stream_ends():
    reading = Reading()
    reading.stream.close()
    assert list(reading.stream) == []


@pytest.mark.parametrize("pattern", Pattern)
def test_registrations_come_back(pattern):
    registration = Registration({"a.*": 2}, pattern)
    assert decode_registration(encode_registration(registration, 5)) == registration


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"subscription":{},"pattern":"white_list"}', b'{"subscription":{"(":1},"pattern":"black_list"}',
     b'{"subscription":{"a":1},"pattern":"other"}'],
)  # fmt: skip
def test_what_is_no_registration(data):
    with pytest.raises(ZooKeeperError, match="not a consumer's registration"):
        decode_registration(data)


def test_filters_match_whole_names_and_hide_internal_topics():
    existing = ["web", "webs", "app", "__consumer_offsets"]
    white = Registration({filter_expression(" 'web, app' "): 1}, Pattern.WHITE_LIST)
    black = Registration({"web": 1}, Pattern.BLACK_LIST)
    assert white.topics(existing) == {"web": 1, "app": 1}
    assert black.topics(existing) == {"webs": 1, "app": 1}
    assert black.topics(existing, exclude_internal=False) == {"webs": 1, "app": 1, "__consumer_offsets": 1}
    with pytest.raises(InvalidConfigError, match="topic filter"):
        filter_expression("(")
