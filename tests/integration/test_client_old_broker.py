"""A broker that cuts the first batch at the byte limit, as those before KIP-74 did."""

import pytest

from millrace.client import Cluster, SimpleConsumer, SyncProducer
from millrace.errors import RecordTooLargeError
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess

SIZE_BYTES = 50_000


class CuttingConsumer(SimpleConsumer):
    """What the broker returns, cut at the limit, and the limits that were asked for."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.limits = []

    def _fetch(self, topic, partition, offset, max_bytes, limits):
        self.limits.append(max_bytes)
        data = super()._fetch(topic, partition, offset, max_bytes, limits)
        return data._replace(records=data.records[:max_bytes])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One log with one batch."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker, Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send("events", 0, [NewRecord(bytes(SIZE_BYTES))])
        yield cluster


@pytest.fixture
def consumer(cluster):
    return CuttingConsumer(cluster)


@pytest.mark.parametrize("first_limit", [1, 11, 12, 61, 1000])
def test_the_limit_doubles_until_the_batch_is_whole(consumer, first_limit):
    data = consumer.fetch("events", 0, 0, max_bytes=first_limit)
    assert next(decode_records(data.records)).value == bytes(SIZE_BYTES)
    assert consumer.limits == [first_limit << step for step in range(len(consumer.limits))]
    assert consumer.limits[-2] < len(data.records) <= consumer.limits[-1]


@pytest.mark.parametrize("limits", [[1000], [1000, 1001], [1000, 2000, 4000, 8000], [1000, 2000, 4000, 5000]])
def test_the_doubling_ends_at_its_bound(consumer, limits):
    with pytest.raises(RecordTooLargeError, match=f"above {limits[-1]} bytes"):
        consumer.fetch("events", 0, 0, max_bytes=1000, largest_bytes=limits[-1])
    assert consumer.limits == limits


def test_the_end_of_a_log_is_no_cut_batch(consumer):
    assert consumer.fetch("events", 0, 1).records == b""
    assert len(consumer.limits) == 1
