"""Which broker a client believes: several of them, each with its own idea of the cluster."""

from types import SimpleNamespace

import pytest

from millrace.addresses import Address
from millrace.client import Cluster
from millrace.client.answers import check
from millrace.client.metadata import AbsentTopicError
from millrace.errors import BrokerError, BrokerUnreachableError, ErrorCode, NotLeaderError
from millrace.uuids import NO_TOPIC_ID

ADDRESSES = {number: Address("broker", number) for number in (1, 2, 3)}


class Told(Cluster):
    """A cluster whose brokers answer what a test says, one answer after the other; the last one again and again.

    An answer is `brokers`, a list of ids, and `events`, the leader and the leader epoch of the topic's one partition,
    or None for a broker that does not know the topic. No answers at all are those of a broker that is away.
    """

    def __init__(self, answers):
        super().__init__(",".join(map(str, ADDRESSES.values())))
        self.answers, self.asked = {number: list(some) for number, some in answers.items()}, []

    def connection_to(self, address):
        return SimpleNamespace(request=lambda *_: self.answer(address.port))

    def answer(self, number):
        self.asked.append(number)
        answers = self.answers[number]
        if not answers:
            raise BrokerUnreachableError(f"broker {number} is away")
        return metadata(*(answers.pop(0) if len(answers) > 1 else answers[0]))


def metadata(brokers, events):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if events is None else 0
    partitions = [] if events is None else [partition(*events)]
    topic = SimpleNamespace(name="events", topic_id=NO_TOPIC_ID, error_code=code, partitions=partitions)
    nodes = [SimpleNamespace(node_id=one, host="broker", port=one, rack=None) for one in brokers]
    return SimpleNamespace(cluster_id="told", controller_id=1, brokers=nodes, topics=[topic])


def partition(leader, leader_epoch):
    return SimpleNamespace(
        partition_index=0, leader_id=leader, leader_epoch=leader_epoch, replica_nodes=(1, 2, 3), isr_nodes=(1, 2, 3)
    )


ALL = [1, 2, 3]
KNOWN = (ALL, (2, 5))
NOTHING_YET = ([], None)
UNKNOWN = (ALL, None)


def leader_of(metadata):
    return metadata.leader("events", 0).id


def test_a_broker_that_has_just_started_is_passed_over():
    cluster = Told({1: [NOTHING_YET], 2: [KNOWN], 3: []})
    assert leader_of(cluster.metadata(["events"])) == 2
    assert cluster.asked == [1, 2]


def test_brokers_that_have_all_just_started_are_asked_again():
    cluster = Told({1: [NOTHING_YET, NOTHING_YET, KNOWN], 2: [NOTHING_YET], 3: []})
    assert leader_of(cluster.metadata(["events"])) == 2
    assert cluster.asked == [1, 2, 3, 1, 2, 3, 1]


def test_brokers_that_hear_of_the_cluster_late_are_asked_more_often_than_others(monkeypatch):
    monkeypatch.setattr("millrace.client.cluster.RETRY_ATTEMPTS", 2)
    cluster = Told({1: [NOTHING_YET] * 4 + [KNOWN], 2: [NOTHING_YET], 3: []})
    assert leader_of(cluster.metadata(["events"])) == 2
    assert cluster.asked == [1, 2, 3] * 4 + [1]


def test_brokers_that_never_hear_of_the_cluster_end_in_an_error_that_may_pass():
    cluster = Told({1: [NOTHING_YET], 2: [NOTHING_YET], 3: []})
    cluster.timeout_s = 0.2
    with pytest.raises(BrokerError) as caught:
        cluster.metadata(["events"])
    assert caught.value.broker_code == ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize(
    "before_the_election",
    [
        pytest.param((ALL, (-1, 4)), id="nobody leads"),
        pytest.param((ALL, (3, 4)), id="the leader is away"),
    ],
)
def test_an_election_is_waited_for_however_many_attempts_that_takes(monkeypatch, before_the_election):
    monkeypatch.setattr("millrace.client.cluster.RETRY_ATTEMPTS", 2)
    cluster = Told({1: [before_the_election] * 4 + [KNOWN], 2: [KNOWN], 3: []})
    assert cluster.on_leader("events", 0, lambda connection: connection.request()).brokers[1].node_id == 2
    assert cluster.asked.count(1) == 5


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR])
def test_an_election_that_does_not_end_is_waited_for_as_long_as_there_is_time(monkeypatch, code):
    monkeypatch.setattr("millrace.client.cluster.RETRY_ATTEMPTS", 1)
    cluster, attempts = Told({1: [KNOWN], 2: [KNOWN], 3: []}), []
    cluster.timeout_s = 0.2

    def refused(_):
        attempts.append(code)
        check(code, "events-0")

    with pytest.raises((BrokerError, NotLeaderError)):
        cluster.on_leader("events", 0, refused)
    assert len(attempts) > 1


def test_where_no_broker_answers_attempts_are_counted(monkeypatch):
    monkeypatch.setattr("millrace.client.cluster.RETRY_ATTEMPTS", 2)
    cluster = Told({1: [], 2: [], 3: []})
    with pytest.raises(BrokerUnreachableError, match="broker 1 is away; broker 2"):
        cluster.on_leader("events", 0, lambda connection: connection.request())
    assert cluster.asked == ALL * 2


def test_a_topic_that_one_broker_lacks_is_asked_of_the_others():
    cluster = Told({1: [UNKNOWN], 2: [UNKNOWN], 3: [KNOWN]})
    assert leader_of(cluster.metadata(["events"])) == 2


def test_a_topic_that_no_broker_has_is_absent_at_once():
    cluster = Told({1: [UNKNOWN], 2: [UNKNOWN], 3: []})
    with pytest.raises(AbsentTopicError):
        cluster.partition_count("events")
    assert cluster.asked == [1, 2, 3]


def test_no_broker_at_all_is_an_error_at_once():
    cluster = Told({1: [], 2: [], 3: []})
    with pytest.raises(BrokerUnreachableError, match="broker 1 is away; broker 2 is away; broker 3 is away"):
        cluster.metadata(["events"])
    assert cluster.asked == [1, 2, 3]


def test_of_several_leaders_the_newest_is_believed():
    """Broker 1 has not heard that it leads no longer."""
    cluster = Told({1: [(ALL, (1, 4))], 2: [KNOWN], 3: [UNKNOWN]})
    assert leader_of(cluster.metadata(["events"])) == 1
    assert leader_of(cluster.newest_metadata(["events"])) == 2
    assert cluster.on_leader("events", 0, lambda connection: connection.request()).brokers[1].node_id == 2
    assert cluster.asked[-1] == 2


def test_the_newest_leader_is_not_known_while_a_broker_does_not_answer(monkeypatch):
    monkeypatch.setattr("millrace.client.cluster.RETRY_ATTEMPTS", 2)
    cluster = Told({1: [KNOWN], 2: [KNOWN], 3: []})
    with pytest.raises(BrokerUnreachableError, match="broker 3"):
        cluster.newest_metadata(["events"])


def test_of_too_many_coordinators_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr("millrace.client.cluster.MAX_KNOWN", 2)
    cluster = Told({1: [KNOWN], 2: [KNOWN], 3: [KNOWN]})
    found = []
    monkeypatch.setattr(cluster, "_find_coordinator", lambda key, _: found.append(key) or ADDRESSES[1])
    for group in ("a", "b", "b", "c", "c", "a"):
        cluster.on_coordinator(group, lambda _: None)
    assert found == ["a", "b", "c", "a"]
