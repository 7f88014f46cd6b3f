"""What counts for controller_mutation_rate, and how much: Millrace says of each request what Apache Kafka 3.9 says.

Each row is a client of its own, which sends its requests one after the other, each over a new connection. The rate is
so low that no time of the test matters: a throttle time tells how many partitions the client owes.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from differential import sides
from differential.wire import Wire
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from millrace.client import Cluster, Quotas
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.kafka_messages import Messages

RATE = 0.001  # partitions per second
PROPERTIES = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
TIMEOUT = {"timeoutMs": 60_000}
RESULTS = ("topics", "results", "responses", "coordinators")


def topic(name, partitions=1, replicas=1):
    return {"name": name, "numPartitions": partitions, "replicationFactor": replicas}


def create(version, *topics, validate_only=False):
    return "CreateTopics", version, {"topics": topics, "validateOnly": validate_only, **TIMEOUT}


def grow(version, name, count, *, validate_only=False):
    grown = {"name": name, "count": count, "assignments": None}
    return "CreatePartitions", version, {"topics": [grown], "validateOnly": validate_only, **TIMEOUT}


def delete(version, *names):
    if version < 6:
        return "DeleteTopics", version, {"topicNames": names, **TIMEOUT}
    return "DeleteTopics", version, {"topics": [{"name": name} for name in names], **TIMEOUT}


def find(version, key, key_type):
    keys = {"coordinatorKeys": [key]} if version > 3 else {"key": key}
    return "FindCoordinator", version, {"keyType": key_type, **keys}


def ask(*names):
    return "Metadata", 7, {"topics": [{"name": name} for name in names], "allowAutoTopicCreation": True}


# What is there before, and the requests; the topics of a row have its name at their beginning.
ROWS = {
    "refused": ([], [create(6, topic("refused-1", 3)), create(6, topic("refused-2")), create(7, topic("refused-2"))]),
    "throttled": ([], [create(5, topic("throttled-1", 3)), create(2, topic("throttled-2", 2))]),
    "refused-after-throttled": ([], [create(4, topic("refused-after-throttled-1", 2)),
                                     create(6, topic("refused-after-throttled-2", 2))]),
    "validated": ([], [create(7, topic("validated-1", 5), validate_only=True), create(6, topic("validated-2", 2)),
                       create(7, topic("validated-3", 9), validate_only=True),
                       create(5, topic("validated-3", 9), validate_only=True), create(6, topic("validated-3"))]),
    "wrong": (["wrong"], [create(5, topic("wrong")), create(5, topic("wrong name")), create(5, topic("wrong-1", 0)),
                          create(5, topic("wrong-1", 1, 9)), create(6, topic("wrong-2")),
                          create(6, topic("wrong")), create(6, topic("wrong-1", 0)), create(6, topic("wrong-3"))]),
    "several": ([], [create(6, topic("several-1", 2), topic("several-2", 2), topic("several-3", 2)),
                     create(5, topic("several-4", 2), topic("several-5", 2))]),
    "defaults": ([], [create(5, topic("defaults-1", -1, -1))]),
    "grown": (["grown"], [grow(3, "grown", 3), grow(3, "grown", 5), grow(2, "grown", 5), grow(3, "grown", 9),
                          grow(3, "grown", 9, validate_only=True), grow(2, "grown", 1), grow(3, "grown-no", 9)]),
    "deleted": (["deleted-1", "deleted-2", "deleted-3"], [delete(5, "deleted-1"), delete(5, "deleted-2"),
                                                          delete(6, "deleted-2"), delete(4, "deleted-2"),
                                                          delete(4, "deleted-no"), delete(5, "deleted-3")]),
    "several-deleted": (["several-deleted-1", "several-deleted-2"],
                        [delete(6, "several-deleted-1", "several-deleted-2")]),
    "group": ([], [find(3, "g", 0), create(6, topic("group-1"))]),
    "transaction": ([], [find(4, "t", 1), create(6, topic("transaction-1"))]),
    "metadata": ([], [ask("metadata-1"), ask("metadata-2"), create(6, topic("metadata-3"))]),
    "metadata-refused": ([], [create(6, topic("metadata-refused-1", 2)), ask("metadata-refused-2"),
                              create(6, topic("metadata-refused-3"))]),
}  # fmt: skip


@pytest.fixture(scope="module")
def brokers(find_peer, tmp_path_factory):
    """Kafka and Millrace, each alone in its cluster, with the quota for every client."""
    kafka, directory = find_peer("3.9"), tmp_path_factory.mktemp("changes")
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ThreadPoolExecutor() as pool:
        starting = pool.submit(
            KafkaBroker, kafka, directory / "kafka", zookeeper=f"{zookeeper.address}/kafka", properties=PROPERTIES
        )
        millrace = f"{zookeeper.address}/millrace"
        with (
            BrokerProcess(directory / "millrace", zookeeper=millrace, properties=PROPERTIES) as ours,
            starting.result() as theirs,
        ):
            messages = Messages([kafka])
            both = [sides.side(name, one.bootstrap, messages) for name, one in (("Kafka", theirs), ("ours", ours))]
            for side in both:
                with Cluster(side.bootstrap) as cluster:
                    Quotas(cluster).alter({"client-id": None}, {"controller_mutation_rate": RATE})
                until_obeyed(side)
            yield both


@retry(retry=retry_if_result(lambda owed: not owed), stop=stop_after_delay(60), wait=wait_fixed(0.1))
def until_obeyed(side):
    """Kafka hears of its own quotas a little later: each of these topics is another one."""
    name = f"obeyed-{len(side.shared_topics)}"
    side.shared_topics[name] = name
    return asked(side, name, create(5, topic(name)))[1]


def asked(side, client_id, request):
    """The errors of an answer in any order, and how many partitions the client owes, as it is told."""
    api, version, fields = request
    wire = Wire(side.messages, side.bootstrap, client_id=client_id)
    answer = wire.receive(wire.send(api, version, fields))
    wire.close()
    answers = next((answer[name] for name in RESULTS if name in answer), [])
    return sorted(one["errorCode"] for one in answers), round(answer["throttleTimeMs"] / 1000 * RATE)


def told(side, client_id):
    """What a client is told of its requests; a coordinator is waited for, as Kafka says only later that it is there."""
    there, requests = ROWS[client_id]
    for name in there:
        assert asked(side, f"makes {name}", create(5, topic(name, 2)))[0] == [0]
    found = []
    for request in requests:
        answer = asked(side, client_id, request)
        if request[0] in {"FindCoordinator", "Metadata"}:
            answer = None, answer[1]
            until_made(side, request)
        found.append(answer)
    return found


@retry(retry=retry_if_result(any), stop=stop_after_delay(60), wait=wait_fixed(0.05))
def until_made(side, request):
    api, version, fields = request
    wire = Wire(side.messages, side.bootstrap, client_id="waits")
    answer = wire.receive(wire.send(api, version, fields))
    wire.close()
    answers = next((answer[name] for name in RESULTS if name in answer), [answer])
    return [one["errorCode"] for one in answers]


@pytest.mark.parametrize("client_id", ROWS)
def test_what_counts_is_what_counts_in_kafka(brokers, client_id):
    theirs, ours = (told(side, client_id) for side in brokers)
    assert ours == theirs
    assert any(owed for _, owed in theirs)
