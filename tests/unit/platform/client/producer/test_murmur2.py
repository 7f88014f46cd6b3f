"""Keys go where Kafka's own clients send them."""

import pytest
from kafka.partitioner.default import murmur2 as reference_murmur2

from millrace.client.producer.plugins import murmur2, partition_for_key


def signed(value):
    return value - (1 << 32) if value & 0x80000000 else value


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # the vectors of Apache Kafka's UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        # what Java's `Utils.murmur2` gives too: empty, negative bytes, negative results, long keys
        (b"", 275646681),
    ],
)
def test_murmur2_gives_kafkas_vectors(key, expected):
    assert signed(murmur2(key)) == expected


@pytest.mark.parametrize("length", range(20))
def test_murmur2_equals_another_client_on_every_tail_length(length):
    key = bytes((37 * index + 200) % 256 for index in range(length))
    assert murmur2(key) == reference_murmur2(key) & 0xFFFFFFFF


def test_every_partition_is_in_range_and_used():
    partitions = {partition_for_key(b"key-%d" % index, 7) for index in range(200)}
    assert partitions == set(range(7))
