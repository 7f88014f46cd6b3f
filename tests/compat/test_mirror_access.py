"""ACLs, quotas and users of a source and a target, of Millrace and of Apache Kafka."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, Quotas, Users
from millrace.client.access import create_acls, delete_acls, find_acls
from millrace.client.producer import Producer
from millrace.errors import MillraceError
from millrace.ports import free_port
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.security.client_security import ClientSecurity
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror.access import AccessKeeper
from millrace_pipelines.mirror.settings_file import read_settings
from millrace_pipelines.mirror.states import States
from millrace_pipelines.mirror.topic_keeper import TopicKeeper
from millrace_support.waiting import until

OPEN = {"super.users": "User:ANONYMOUS", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
OF_KRAFT = OPEN | {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
OF_TOPICS = AclFilter(ResourceType.TOPIC)
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
QUOTAS = [({"user": "alice"}, 1e6), ({"client-id": "app"}, 2e6), ({"user": "bob", "client-id": None}, 3e6)]


class Started:
    """A broker with rights: its plain listener, and one for logins where it has a ZooKeeper."""

    def __init__(self, stack, kind, folder, find_peer, zookeeper):
        self.zookeeper = None if kind == "4.1" else f"{zookeeper}/{uuid4().hex}"
        self.logins = None
        if "millrace" in kind:
            ports = free_port(), free_port()
            self.logins = f"127.0.0.1:{ports[1]}"
            listeners = f"PLAINTEXT://127.0.0.1:{ports[0]},SASL_PLAINTEXT://{self.logins}"
            properties = OPEN | SCRAM | {"listeners": listeners}
            broker = stack.enter_context(BrokerProcess(folder, zookeeper=self.zookeeper, properties=properties))
        else:
            properties = OF_KRAFT if kind == "4.1" else OPEN
            peer = find_peer(kind)
            broker = stack.enter_context(KafkaBroker(peer, folder, zookeeper=self.zookeeper, properties=properties))
        self.bootstrap = broker.bootstrap


@pytest.fixture(scope="module")
def start(find_peer, tmp_path_factory, zookeeper):
    started = {}
    with ExitStack() as stack:

        def begun(kind):
            if kind not in started:
                folder = tmp_path_factory.mktemp(kind.replace(" ", "-"))
                started[kind] = Started(stack, kind, folder, find_peer, zookeeper.address)
            return started[kind]

        yield begun


class Pair:
    """Two clusters, and the keepers between them."""

    def __init__(self, stack, source, target, **asked):
        self.name, self.topic = f"s{uuid4().hex[:8]}", f"t{uuid4().hex[:8]}"
        self.source, self.target = (stack.enter_context(Cluster(one.bootstrap)) for one in (source, target))
        states = States(self.target, stack.enter_context(Producer(broker_list=target.bootstrap)))
        states.create()
        sides = [{"bootstrap": one.bootstrap, "zookeeper": one.zookeeper} for one in (source, target)]
        told = [{name: value for name, value in one.items() if value is not None} for one in sides]
        options = {"sources": [{"name": self.name, **told[0]}], "target": told[1], "topics": f"{self.topic}.*", **asked}
        settings = read_settings(None, options)
        clusters = (settings, settings.sources[0], self.source, self.target, states)
        self.topics, self.access = TopicKeeper(*clusters), AccessKeeper(*clusters)


PAIRS = [
    ("millrace", "other millrace"),
    ("3.9", "millrace"),
    ("4.1", "millrace"),
    ("millrace", "3.9"),
    ("millrace", "4.1"),
]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request, start):
    with ExitStack() as stack:
        yield Pair(stack, *map(start, request.param), acls=True, quotas=True)


def binding(name, operation, kind=PatternType.LITERAL, user="User:alice"):
    pattern = ResourcePattern(ResourceType.TOPIC, name, kind)
    return AclBinding(pattern, Acl(user, "*", operation, PermissionType.ALLOW))


def test_acls_go_along_and_go_when_they_go(pair):
    follows = pair.access._states.read
    Admin(pair.source).create_topic(pair.topic, 1)
    given = [binding(pair.topic[:6], READ, PatternType.PREFIXED), binding(pair.topic, WRITE, user="User:bob")]
    create_acls(pair.source, given)
    mine = f"{pair.name}.{pair.topic}"
    own = binding(mine, AclOperation.DELETE, user="User:of-the-target")
    create_acls(pair.target, [own])
    pair.topics.keep()
    is_followed = follows()[f"{pair.name}/{pair.topic}"].way == "follow"

    def there():
        assert pair.access.keep() == {}
        return {one for one in find_acls(pair.target, OF_TOPICS) if one.pattern.name == mine}

    writing = {binding(mine, WRITE, user="User:bob")} if is_followed else set()
    until(there, {own, binding(mine, READ), *writing}.__eq__)
    delete_acls(pair.source, [AclFilter(ResourceType.TOPIC, pair.topic[:6], PatternType.PREFIXED)])
    until(there, {own, *writing}.__eq__)


def test_quotas_go_along_and_go_when_they_go(pair):
    for entity, rate in QUOTAS:
        Quotas(pair.source).alter(entity, {"producer_byte_rate": rate})
    Quotas(pair.target).alter({"user": "of-the-target"}, {"consumer_byte_rate": 5.0})

    def there():
        assert pair.access.keep() == {}
        return {frozenset(one.entity.items()): dict(one.quotas) for one in Quotas(pair.target).describe()}

    own = {frozenset({("user", "of-the-target")}): {"consumer_byte_rate": 5.0}}
    wanted = {frozenset(entity.items()): {"producer_byte_rate": rate} for entity, rate in QUOTAS}
    until(there, (wanted | own).__eq__)
    for entity, _ in QUOTAS:
        Quotas(pair.source).alter(entity, {}, ["producer_byte_rate"])
    until(there, own.__eq__)
    Quotas(pair.target).alter({"user": "of-the-target"}, {}, ["consumer_byte_rate"])
    until(lambda: Quotas(pair.target).describe(), [].__eq__)


@pytest.mark.parametrize("names", [one for one in PAIRS if "4.1" not in one], ids="-".join)
def test_users_log_in_at_the_target_with_their_passwords(names, start):
    source, target = map(start, names)
    with ExitStack() as stack:
        pair = Pair(stack, source, target, users=True)
        users, own = (f"u{uuid4().hex[:8]}" for _ in range(2)), f"own-{uuid4().hex[:8]}"
        alice, bob = users
        Quotas(pair.target).alter({"user": alice}, {"producer_byte_rate": 7e6})
        Users(pair.target).set_password(own, ["SCRAM-SHA-256"], "own", 4096)
        Users(pair.source).set_password(alice, ["SCRAM-SHA-256", "SCRAM-SHA-512"], "secret-1", 8192)
        Users(pair.source).set_password(bob, ["SCRAM-SHA-512"], "secret-2", 4096)

        def there():
            assert pair.access.keep() == {}
            found = Users(pair.target).describe()
            return {one: found[one] for one in (alice, bob, own) if one in found}

        wanted = {alice: {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}, bob: {"SCRAM-SHA-512": 4096}}
        until(there, (wanted | {own: {"SCRAM-SHA-256": 4096}}).__eq__)
        assert [one.quotas for one in Quotas(pair.target).describe() if one.entity == {"user": alice}] == [
            {"producer_byte_rate": 7e6}
        ]
        if target.logins:
            until(lambda: logs_in(target.logins, alice, "secret-1"))
            assert not logs_in(target.logins, alice, "secret-2")
        Users(pair.source).delete(bob, ["SCRAM-SHA-512"])
        until(there, {alice: wanted[alice], own: {"SCRAM-SHA-256": 4096}}.__eq__)
        Quotas(pair.target).alter({"user": alice}, {}, ["producer_byte_rate"])


def logs_in(address, user, password):
    told = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user,
        "sasl.password": password,
    }  # fmt: skip
    try:
        with Cluster(address, security=ClientSecurity.from_properties(told)) as cluster:
            return bool(cluster.metadata([]).brokers)
    except MillraceError:
        return False


def test_a_kind_that_fails_stops_no_other_one(start, tmp_path):
    """A source without an authorizer has no ACLs to tell."""
    with ExitStack() as stack:
        bare = stack.enter_context(BrokerProcess(tmp_path / "bare"))
        bare.zookeeper = None
        pair = Pair(stack, bare, start("millrace"), acls=True, quotas=True)
        entity = {"client-id": f"c{uuid4().hex[:8]}"}
        Quotas(pair.source).alter(entity, {"producer_byte_rate": 1e6})
        assert pair.access.keep().keys() == {"ACLs"}
        assert entity in [one.entity for one in Quotas(pair.target).describe()]
        Quotas(pair.target).alter(entity, {}, ["producer_byte_rate"])
