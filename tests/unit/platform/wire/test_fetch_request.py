"""Fetch requests as a follower writes them: the same bytes that kio writes, and read as they were written."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.wire.fetch import (
    FOLLOWERS_VERSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    PartitionKey,
    decode_fetch_request,
    encode_fetch_request,
)
from millrace.wire.messages import FETCH

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**31 - 1)
KEYS = st.builds(PartitionKey, st.sampled_from([UUID(int=number) for number in (1, 2, 3)]), COUNTS)
REQUESTS = st.builds(
    FetchRequest,
    replica_id=COUNTS,
    max_wait_ms=COUNTS,
    min_bytes=COUNTS,
    max_bytes=COUNTS,
    isolation_level=st.just(READ_UNCOMMITTED),
    session_id=COUNTS,
    session_epoch=INT32,
    wanted=st.dictionaries(KEYS, st.builds(FetchPartition, INT64, COUNTS, INT32, INT32, INT64), max_size=200),
    forgotten=st.lists(KEYS, max_size=200),
    rack=st.text(max_size=20),
    replica_epoch=INT64,
    damaged=st.none() | st.dictionaries(KEYS, INT64, max_size=5),
    healed=st.none() | st.dictionaries(KEYS, INT64, max_size=5),
)


def fields(request):
    """The same request as kio takes it."""
    topics = {key.topic: [] for key in request.wanted}
    forgotten = {key.topic: [] for key in request.forgotten}
    for key, one in request.wanted.items():
        topics[key.topic].append(
            {
                "partition": key.partition, "current_leader_epoch": one.current_leader_epoch,
                "fetch_offset": one.fetch_offset, "last_fetched_epoch": one.last_fetched_epoch,
                "log_start_offset": one.log_start_offset, "partition_max_bytes": one.max_bytes,
            }
        )  # fmt: skip
    for key in request.forgotten:
        forgotten[key.topic].append(key.partition)
    return {
        "max_wait": request.max_wait_ms, "min_bytes": request.min_bytes, "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level, "session_id": request.session_id,
        "session_epoch": request.session_epoch, "rack_id": request.rack,
        "topics": [{"topic_id": topic, "partitions": some} for topic, some in topics.items()],
        "forgotten_topics_data": [{"topic_id": topic, "partitions": some} for topic, some in forgotten.items()],
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
    }  # fmt: skip


@given(REQUESTS)
def test_a_follower_writes_the_bytes_that_kio_writes(request):
    request = request._replace(damaged=None, healed=None)
    assert encode_fetch_request(request) == FETCH.encode_request(FOLLOWERS_VERSION, fields(request))


@given(REQUESTS)
def test_a_request_is_read_as_it_was_written(request):
    read = decode_fetch_request(FOLLOWERS_VERSION, encode_fetch_request(request))
    assert read._replace(forgotten=sorted(read.forgotten)) == request._replace(forgotten=sorted(request.forgotten))


@given(REQUESTS)
def test_who_does_not_know_the_fields_of_millrace_reads_all_else(request):
    read = FETCH.decode_request(FOLLOWERS_VERSION, encode_fetch_request(request))
    plain = FETCH.decode_request(FOLLOWERS_VERSION, encode_fetch_request(request._replace(damaged=None, healed=None)))
    assert read == plain


def test_a_partition_named_by_the_topics_name_can_not_be_written():
    request = FetchRequest(1, 0, 0, 0, READ_UNCOMMITTED, 0, 0, {PartitionKey("events", 0): FetchPartition(0, 0)}, [])
    with pytest.raises(AssertionError, match="by their ids"):
        encode_fetch_request(request)
