"""Whether a Produce request names many partitions is seen without decoding it, in every version."""

import pytest

from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.produce import MANY_PARTITIONS, has_many_partitions

SHAPES = {
    "one": ([1], False),
    "as many as are few": ([MANY_PARTITIONS], False),
    "one more": ([MANY_PARTITIONS + 1], True),
    "some of each of two topics": ([MANY_PARTITIONS // 2] * 2, False),
    "together too many": ([MANY_PARTITIONS // 2] * 2 + [1], True),
    "many topics": ([1] * (MANY_PARTITIONS + 1), True),
}


def request(version, counts):
    topics = [
        {
            **({"topic_id": NO_TOPIC_ID} if version >= 13 else {"name": "events"}),
            "partition_data": [{"index": index, "records": b"records"} for index in range(count)],
        }
        for count in counts
    ]
    fields = {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": topics}
    return encode(ApiKey.PRODUCE, version, Direction.REQUEST, fields)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize(("counts", "are_many"), SHAPES.values(), ids=SHAPES)
def test_partitions_are_counted(version, counts, are_many):
    assert has_many_partitions(version, memoryview(request(version, counts))) == are_many


@pytest.mark.parametrize("version", [2, 3, 9, 13])
def test_bytes_that_end_early_are_not_many(version):
    body = request(version, [3, 3])
    assert not any(has_many_partitions(version, memoryview(body)[:end]) for end in range(len(body)))
