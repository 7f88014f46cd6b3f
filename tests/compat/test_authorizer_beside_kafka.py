"""Millrace and Apache Kafka 3.9 with the same access control lists: the same answers to who may and who may not.

Everyone is User:ANONYMOUS. Who comes from 127.0.0.1 may do everything; who comes from 127.0.0.2 may do what a test
gives. Every request is sent in every version that both serve: by somebody who may do nothing, by somebody who has some
of the rights that it needs, and by somebody who has them all. What the answers say of errors, names and operations is
compared.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from differential import sides
from differential.guarded import GROUP, OFFSETS, ROWS, TOPIC, TXN, with_id
from differential.session import Session
from differential.wire import CLOSED, ConnectionClosedError, Wire

from millrace.security.acls import AclOperation, PatternType, PermissionType, ResourceType
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.kafka_messages import Messages

GUEST = "127.0.0.2"
ACLS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
}
SAID = ("errorCode", "partitionErrorCode", "topicConfigErrorCode", "name", "topicName", "topic", "groupId", "key",
        "partitionIndex", "partition", "authorizedOperations", "topicAuthorizedOperations",
        "clusterAuthorizedOperations", "resourceName", "transactionalId")  # fmt: skip
ANYONE = [one for one in ResourceType if one > ResourceType.ANY]


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


def grants(rights):
    return [
        creation(ResourceType.parse(kind), name, AclOperation.parse(operation), GUEST)
        for kind, name, operation in rights
    ]


class Guarded:
    """A broker, its administrator and its guest."""

    def __init__(self, side):
        self.side = side
        self.admin = Session(side, "CreateAcls", "admin", 3)
        self.guest = Wire(side.messages, side.bootstrap, GUEST)
        everything = [
            creation(one, "kafka-cluster" if one is ResourceType.CLUSTER else "*", AclOperation.ALL, "127.0.0.1")
            for one in ANYONE
        ]
        self.give(everything)
        made = {"name": TOPIC, "numPartitions": 1, "replicationFactor": 1}
        self.admin.call("CreateTopics", 5, topics=[made], timeoutMs=60_000)
        self.admin.await_topic(TOPIC, 1)
        self.topic_id = self.admin.topic_id(TOPIC)
        sides.await_coordinators(side)
        self.admin.call("OffsetCommit", 2, groupId=GROUP, topics=OFFSETS)
        self.admin.until(
            lambda: self.admin.call("FindCoordinator", 1, key=TXN, keyType=1),
            lambda answer: answer["errorCode"] == 0,
        )
        self.admin.until(
            lambda: self.admin.call("InitProducerId", 0, transactionalId=TXN, transactionTimeoutMs=1000),
            lambda answer: answer["errorCode"] == 0,
        )

    def give(self, creations):
        answer = self.admin.call("CreateAcls", 3, creations=creations)
        assert [one["errorCode"] for one in answer["results"]] == [0] * len(creations)

    def take_all(self):
        filters = [{
            "resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1,
            "principalFilter": None, "hostFilter": GUEST, "operation": 1, "permissionType": 1,
        }]  # fmt: skip
        self.admin.call("DeleteAcls", 3, filters=filters)

    def ask(self, row, version):
        """What the guest is told, or that the connection was closed."""
        fields = self._of_version(f"{row.api}Request", version, row.fields)
        try:
            return said(self.guest.receive(self.guest.send(row.api, version, fields)))
        except ConnectionClosedError:
            self.guest = Wire(self.side.messages, self.side.bootstrap, GUEST)
            return CLOSED

    def _of_version(self, name, version, fields):
        known = {one.name for one in self.side.messages.definition(name, version).fields}
        return {key: with_id(value, self.topic_id) for key, value in fields.items() if key in known}


def said(answer):
    """Errors, names and operations of an answer, in any order."""
    if isinstance(answer, dict):
        kept = {name: said(one) for name, one in answer.items() if name != "configs"}
        return {name: one for name, one in kept.items() if name in SAID or (isinstance(one, dict | list) and one)}
    if isinstance(answer, list):
        return sorted((said(one) for one in answer if isinstance(one, dict)), key=repr)
    return answer


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def brokers(find_peer, directory):
    kafka = find_peer("3.9")
    messages = Messages([kafka])
    properties = {**sides.PROPERTIES, **ACLS}
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ThreadPoolExecutor() as pool:
        starting = pool.submit(
            KafkaBroker, kafka, directory / "kafka", zookeeper=f"{zookeeper.address}/kafka", properties=properties
        )
        millrace = f"{zookeeper.address}/millrace"
        with (
            BrokerProcess(directory / "millrace", zookeeper=millrace, properties=properties) as ours,
            starting.result() as theirs,
        ):
            assert ours.admin_url, "its file is among those that are compared"
            named = {"Kafka 3.9": theirs, sides.MILLRACE: ours}
            yield [Guarded(sides.side(name, one.bootstrap, messages)) for name, one in named.items()]


def compared(brokers, row, rights):
    """What the two say otherwise, by version, to a guest with these rights."""
    theirs, ours = brokers
    for one in brokers:
        one.give(grants(rights))
    try:
        versions = [
            version
            for version in ours.side.versions.get(row.api, ())
            if version in theirs.side.versions.get(row.api, ()) and row.first <= version <= row.last
        ]
        assert versions, f"{row.api} is served by both in no version"
        answers = {version: (theirs.ask(row, version), ours.ask(row, version)) for version in versions}
        return {version: both for version, both in answers.items() if both[0] != both[1]}
    finally:
        for one in brokers:
            one.take_all()


def contents(directory):
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if "checkpoint" not in path.name and path.is_file()  # nor what a checkpoint is before it is in its place
    }


def row_id(row):
    return f"{row.api}-{ROWS.index(row)}"


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_who_may_do_nothing_is_denied_and_changes_nothing(brokers, directory, row):
    before = contents(directory / "millrace")
    assert compared(brokers, row, []) == {}
    assert contents(directory / "millrace") == before


@pytest.mark.parametrize("row", [row for row in ROWS if row.rights and len(row.rights) > 1], ids=row_id)
@pytest.mark.parametrize("missing", [0, 1])
def test_who_lacks_one_right_sees_what_kafka_shows(brokers, row, missing):
    assert compared(brokers, row, [one for index, one in enumerate(row.rights) if index != missing]) == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.rights], ids=row_id)
def test_who_has_all_rights_gets_what_kafka_gives(brokers, row):
    assert compared(brokers, row, row.rights) == {}
