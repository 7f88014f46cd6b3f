"""What the mirror asks of the leaders of a real broker: topics by their ids, each partition with its own answer."""

from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.errors import BrokerError, ErrorCode
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror.fetching import Fetcher
from millrace_support.mirrored_records import write
from millrace_support.waiting import until

RECORDS = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        yield started


def test_a_topic_that_is_created_again_is_another_one(broker):
    """Nobody asks while it is gone, and the new log is as long as the former one, under the same leader epoch."""
    topic = f"t{uuid4().hex[:8]}"
    with Cluster(broker.bootstrap) as cluster, Cluster(broker.bootstrap) as other:
        admin = Admin(other)
        admin.create_topic(topic, 1)
        write(broker.bootstrap, topic, 1, RECORDS, seed=1)
        fetcher = Fetcher(cluster, IsolationLevel.READ_UNCOMMITTED, "source east")
        assert isinstance(fetcher.fetch({(topic, 0): 0})[topic, 0], FetchedData)
        admin.delete_topic(topic)
        until(lambda: other.metadata([topic]).lacks([topic]))
        admin.create_topic(topic, 1)
        write(broker.bootstrap, topic, 1, RECORDS, seed=2)
        answer = fetcher.fetch({(topic, 0): RECORDS})[topic, 0]
        assert isinstance(answer, BrokerError)
        assert answer.broker_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert isinstance(fetcher.fetch({(topic, 0): RECORDS})[topic, 0], FetchedData)


def test_topics_of_one_request_have_their_own_answers(broker):
    topics = [f"t{uuid4().hex[:8]}" for _ in range(3)]
    with Cluster(broker.bootstrap) as cluster:
        for seed, topic in enumerate(topics):
            Admin(cluster).create_topic(topic, 2)
            write(broker.bootstrap, topic, 2, RECORDS, seed)
        fetcher = Fetcher(cluster, IsolationLevel.READ_UNCOMMITTED, "source east")
        places = {(topic, partition): 0 for topic in topics for partition in range(2)}
        found = fetcher.fetch(places | {("unknown", 0): 0, (topics[0], 7): 0})
        assert all(isinstance(found[one], FetchedData) and found[one].records for one in places)
        assert len({bytes(found[one].records) for one in places}) == len(places)
        assert not any(isinstance(found[one], FetchedData) for one in (("unknown", 0), (topics[0], 7)))
