"""Subscriptions by pattern and access control lists: members and observers see what Apache Kafka 4.1 shows them.

Everyone is User:ANONYMOUS. Who comes from 127.0.0.1 may do everything; who comes from 127.0.0.2 may use groups, and
know of the topic `open-1`, but not of `hidden-1`.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from differential import sides
from differential.wire import Wire
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.security.acls import AclOperation, PatternType, PermissionType, ResourceType
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.kafka_messages import Messages

HOST, GUEST = "127.0.0.1", "127.0.0.2"
OPEN, HIDDEN = "open-1", "hidden-1"
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}
WAIT_S = 60


def creation(resource_type, name, operation, host):
    return {
        "resourceType": int(resource_type),
        "resourceName": name,
        "resourcePatternType": int(PatternType.LITERAL),
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": int(operation),
        "permissionType": int(PermissionType.ALLOW),
    }


class Home:
    """A broker, its topics and lists."""

    def __init__(self, side):
        self.side = side
        self._at = {host: Wire(side.messages, side.bootstrap, host) for host in (HOST, GUEST)}
        everything = [
            creation(one, "kafka-cluster" if one is ResourceType.CLUSTER else "*", AclOperation.ALL, HOST)
            for one in ResourceType
            if one > ResourceType.ANY
        ]
        rights = [
            creation(ResourceType.GROUP, "*", AclOperation.READ, GUEST),
            creation(ResourceType.TOPIC, OPEN, AclOperation.DESCRIBE, GUEST),
        ]
        self.ask(HOST, "CreateAcls", 3, creations=everything + rights)
        topics = [{"name": name, "numPartitions": 1, "replicationFactor": 1} for name in (OPEN, HIDDEN)]
        self.ask(HOST, "CreateTopics", 5, topics=topics, timeoutMs=60_000)
        self.names = self._topic_ids()
        self._coordinator()

    def ask(self, host, api, version, /, **fields):
        wire = self._at[host]
        return wire.receive(wire.send(api, version, fields))

    def heartbeat(self, host, member, epoch, **said):
        fields = {"groupId": "g", "memberId": member, "memberEpoch": epoch, **said}
        if epoch == 0:
            fields = {"rebalanceTimeoutMs": 60_000, "topicPartitions": [], **fields}
        return self.ask(host, "ConsumerGroupHeartbeat", 1, **fields)

    @retry(retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.1))
    def _topic_ids(self):
        topics = self.ask(HOST, "Metadata", 12, topics=[{"name": name} for name in (OPEN, HIDDEN)])["topics"]
        assert not any(one["errorCode"] for one in topics)
        return {one["topicId"]: one["name"] for one in topics}

    @retry(retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.1))
    def _coordinator(self):
        answer = self.ask(HOST, "FindCoordinator", 4, keyType=0, coordinatorKeys=["g"])
        assert not answer["coordinators"][0]["errorCode"]
        assert not self.heartbeat(HOST, "probe", 0, groupId="probe", subscribedTopicNames=[OPEN])["errorCode"]

    def member(self, host, group, pattern):
        """Joins by a pattern, and beats until partitions are assigned; which topics they are of."""
        answer = self.heartbeat(host, f"of {host}", 0, groupId=group, subscribedTopicRegex=pattern)
        assert answer["errorCode"] == 0, answer
        return self._assigned(host, group, answer)

    @retry(retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.1))
    def _assigned(self, host, group, answer):
        """Kafka resolves patterns on another thread: what is assigned comes later."""
        while True:
            topics = (answer["assignment"] or {"topicPartitions": []})["topicPartitions"]
            if topics:
                return sorted(self.names[one["topicId"]] for one in topics)
            answer = self.heartbeat(
                host, f"of {host}", answer["memberEpoch"], groupId=group,
                rebalanceTimeoutMs=60_000, subscribedTopicRegex=None, subscribedTopicNames=[], topicPartitions=[],
            )  # fmt: skip
            assert answer["errorCode"] == 0, answer

    def described(self, host, group):
        """The error of a description, and the topics that it names."""
        [found] = self.ask(host, "ConsumerGroupDescribe", 1, groupIds=[group])["groups"]
        assignments = [one[kind] for one in found["members"] for kind in ("assignment", "targetAssignment")]
        return found["errorCode"], sorted({one["topicName"] for each in assignments for one in each["topicPartitions"]})


@pytest.fixture(scope="module")
def homes(find_peer, tmp_path_factory):
    kafka, directory = find_peer("4.1"), tmp_path_factory.mktemp("patterns")
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(KafkaBroker, kafka, directory / "kafka", properties=ACLS)
        with BrokerProcess(directory / "millrace", properties=ACLS) as ours, starting.result() as theirs:
            messages = Messages([kafka])
            named = {"Kafka 4.1": theirs, sides.MILLRACE: ours}
            yield [Home(sides.side(name, one.bootstrap, messages)) for name, one in named.items()]


def told(homes, act):
    """What both say, which is the same."""
    theirs, ours = (act(home) for home in homes)
    assert ours == theirs
    return ours


def test_a_pattern_stands_for_the_topics_that_its_member_may_describe(homes):
    assert told(homes, lambda home: home.member(GUEST, "guests", ".*-1")) == [OPEN]
    assert told(homes, lambda home: home.member(HOST, "hosts", ".*-1")) == [HIDDEN, OPEN]


def test_who_may_not_describe_what_a_group_reads_sees_nothing_of_it(homes):
    told(homes, lambda home: home.member(HOST, "described", ".*-1"))
    assert told(homes, lambda home: home.described(HOST, "described")) == (0, [HIDDEN, OPEN])
    code, topics = told(homes, lambda home: home.described(GUEST, "described"))
    assert (code, topics) != (0, [HIDDEN, OPEN])
    told(homes, lambda home: home.member(HOST, "open", OPEN))
    assert told(homes, lambda home: home.described(GUEST, "open")) == (0, [OPEN])
    unknown = {"groupId": "unknown", "subscribedTopicNames": ["nobody's"]}
    told(homes, lambda home: home.heartbeat(HOST, "of an unknown topic", 0, **unknown)["errorCode"])
    told(homes, lambda home: home.described(GUEST, "unknown"))
