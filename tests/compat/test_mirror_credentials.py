"""Credentials that change under a mirror, sessions that end every second, and quotas: it goes on, and loses nothing.

Each side lets in who has the right password or token for two seconds; then a client logs in again, on the same
connection. The mirror is the command, each side of which has its properties in a file.
"""

import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from millrace.client import Admin, Cluster, Quotas, Users
from millrace.client.access import create_acls, find_acls
from millrace.errors import MillraceError
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
from millrace_support.guarded_brokers import PASSWORD, SCRAM, USER, GuardedBroker
from millrace_support.mirrored_records import contents, read, write, write_transactions
from millrace_support.token_server import TokenServer
from millrace_support.waiting import until

MILLRACE = str(Path(sys.executable).with_name("millrace"))
PARTITIONS, RECORDS = 2, 8
SESSION_MS = 2_000
SESSIONS, TOKENS_LIVE_S = 4, 6
RATE, LARGE_BYTES, ROUNDS = 100_000, 100_000, 10
QUOTA_WINDOW_S = 11  # whose bytes go through at once
REFUSED = {"SCRAM": "does not accept the credentials of sasl.jaas.config", "TOKEN": "answered 401"}
RIGHTS = {
    "source": (
        *("READ TOPIC *", "DESCRIBE_CONFIGS TOPIC *", "DESCRIBE CLUSTER kafka-cluster"),
        "DESCRIBE_CONFIGS CLUSTER kafka-cluster",
    ),
    "target": (
        *("CREATE TOPIC *", "READ TOPIC *", "WRITE TOPIC *", "DESCRIBE_CONFIGS TOPIC *", "READ GROUP millrace-*"),
        *("CLUSTER_ACTION CLUSTER kafka-cluster", "WRITE TRANSACTIONAL_ID millrace-mirror-*"),
        *("ALTER CLUSTER kafka-cluster", "DESCRIBE CLUSTER kafka-cluster"),
        *("ALTER_CONFIGS CLUSTER kafka-cluster", "DESCRIBE_CONFIGS CLUSTER kafka-cluster"),
    ),
}


@pytest.fixture(scope="module")
def brokers(find_peer, tmp_path_factory, request):
    """Starts each broker when it is first asked for, by its kind and side; each has tokens and passwords of its own."""
    started = {}
    with ExitStack() as stack:

        def broker(kind, side, *, has_zookeeper=False):
            if (kind, side, has_zookeeper) not in started:
                tokens = stack.enter_context(TokenServer({USER: PASSWORD}, life_s=TOKENS_LIVE_S))
                zookeeper = ""
                if kind == "3.9" or has_zookeeper:
                    zookeeper = f"{request.getfixturevalue('zookeeper').address}/{uuid4().hex}"
                one = GuardedBroker(
                    kind, tmp_path_factory.mktemp(f"{kind}-{side}"), tokens, find_peer=find_peer, zookeeper=zookeeper,
                    properties={"connections.max.reauth.ms": str(SESSION_MS)},
                )  # fmt: skip
                started[kind, side, has_zookeeper] = stack.enter_context(one), tokens
                one.permit(*RIGHTS[side])
            return started[kind, side, has_zookeeper]

        yield broker


class SecuredMirror:
    """The running command between two brokers, and a topic that it mirrors; a context manager that ends it."""

    def __init__(self, source, target, way, listeners, folder, **more):
        self.sides = dict(zip(("source", "target"), (source, target), strict=True))
        self.listeners = dict(zip(self.sides, listeners, strict=True))
        self.name, self.topic = f"n{uuid4().hex[:6]}", f"t{uuid4().hex[:8]}"
        self.files = {side: folder / f"{side}.properties" for side in self.sides}
        for side in self.sides:
            self.give(side, PASSWORD)
        config = folder / "mirror.toml"
        config.write_text(self._settings(way, more))
        with Cluster(source.bootstrap) as cluster:
            Admin(cluster).create_topic(self.topic, PARTITIONS, config={"retention.ms": "-1"})  # as records are old
        self._words = (folder / "words").open("w+")
        self._process = subprocess.Popen([MILLRACE, "mirror", "--config", str(config)], stderr=self._words)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        self._words.close()

    def _settings(self, way, more):
        def side(name):
            address = self.sides[name].addresses[self.listeners[name]]
            return f'bootstrap = "{address}"\nclient_config = "{self.files[name]}"'

        further = "".join(f"{name} = {str(value).lower()}\n" for name, value in more.items() if name != "zookeepers")
        zookeepers = more.get("zookeepers", {})
        of = {name: f'\nzookeeper = "{zookeepers[name]}"\n' if zookeepers else "\n" for name in self.sides}
        return (
            f'topics = ["{self.topic}"]\nway = "{way}"\n{further}[target]\n{side("target")}{of["target"]}'
            f'[[sources]]\nname = "{self.name}"\n{side("source")}{of["source"]}'
        )

    def give(self, side, password):
        """Puts a password into the file of a side, in one step."""
        properties = self.sides[side].properties(self.listeners[side], password)
        new = self.files[side].with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        new.rename(self.files[side])

    @property
    def words(self):
        """The lines that it has told people."""
        assert self._process.poll() is None, "the mirror has ended"
        return Path(self._words.name).read_text(encoding="utf-8").splitlines()

    def write(self, seed):
        write(self.sides["source"].bootstrap, self.topic, PARTITIONS, RECORDS, seed)

    def write_large(self):
        """Writes some of what a quota does not let through at once."""
        value = random.Random(1).randbytes(LARGE_BYTES)
        producer = Producer({"bootstrap.servers": self.sides["source"].bootstrap})
        for partition in range(PARTITIONS):
            producer.produce(self.topic, value, partition=partition)
        assert not producer.flush(60)

    def await_all(self):
        """Waits until the target has what the source has, each record once."""
        wanted = self._contents("source", self.topic)
        until(lambda: (self.words, self._contents("target", f"{self.name}.{self.topic}")), lambda it: it[1] == wanted)

    def _contents(self, side, topic):
        with Cluster(self.sides[side].bootstrap) as cluster:
            if cluster.metadata([topic]).lacks([topic]):
                return None
        return [contents(read(self.sides[side].bootstrap, topic, one)) for one in range(PARTITIONS)]


PAIRS = [
    ("millrace", "millrace", "follow", ("SCRAM", "TOKEN")),
    ("millrace", "millrace", "copy", ("TOKEN", "SCRAM")),
    ("3.9", "4.1", "copy", ("SCRAM", "SCRAM")),
    ("4.1", "millrace", "follow", ("SCRAM", "SCRAM")),
]


@pytest.fixture(params=PAIRS, ids=lambda one: "-".join((*one[:3], *one[3])))
def pair(request, brokers):
    source, target, way, listeners = request.param
    return brokers(source, "source"), brokers(target, "target"), way, listeners


def change_password(guarded, listener, password):
    broker, tokens = guarded
    if listener == "TOKEN":
        tokens.secrets[USER] = password
        return
    with Cluster(broker.bootstrap) as cluster:
        Users(cluster).set_password(USER, [SCRAM], password, 4096)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_password_that_changes_is_read_again(pair, side, tmp_path):
    """The broker has the new one before the file has it: the mirror says so, and goes on once it is there."""
    guarded, listeners = dict(zip(("source", "target"), pair[:2], strict=True)), pair[3]
    listener = listeners[side == "target"]
    with SecuredMirror(pair[0][0], pair[1][0], *pair[2:], tmp_path) as mirror, ExitStack() as after:
        mirror.write(1)
        mirror.await_all()
        after.callback(change_password, guarded[side], listener, PASSWORD)
        change_password(guarded[side], listener, "another-horse-8")
        mirror.write(2)
        until(lambda: [one for one in mirror.words if REFUSED[listener] in one])
        mirror.write(3)
        mirror.give(side, "another-horse-8")
        mirror.await_all()
        assert not [one for one in mirror.words if PASSWORD in one or "another-horse" in one]


def test_sessions_that_end_are_renewed_without_a_word(pair, tmp_path):
    (source, _), (target, _), way, listeners = pair
    with SecuredMirror(source, target, way, listeners, tmp_path) as mirror:
        mirror.write(1)
        mirror.await_all()
        begun, before = time.monotonic(), mirror.words
        for seed in range(2, 100):
            mirror.write(seed)
            if seed % 2:
                write_transactions(source.bootstrap, mirror.topic, PARTITIONS, "ca", seed)
            mirror.await_all()
            if time.monotonic() - begun > SESSIONS * SESSION_MS / 1000:
                break
        assert mirror.words == before


def test_a_quota_of_the_mirrors_user_makes_it_slower_and_no_more(pair, tmp_path):
    """The source's quota holds what is fetched, and the target's what a mirror that copies sends."""
    (source, _), (target, _), way, listeners = pair
    with ExitStack() as stack:
        for broker in (source, target):
            cluster = stack.enter_context(Cluster(broker.bootstrap))
            quotas = Quotas(cluster)
            names = ("consumer_byte_rate", "producer_byte_rate")
            stack.callback(quotas.alter, {"user": USER}, {}, names)
            quotas.alter({"user": USER}, dict.fromkeys(names, float(RATE)))
        mirror = stack.enter_context(SecuredMirror(source, target, way, listeners, tmp_path))
        mirror.write(1)
        mirror.await_all()
        before, begun = mirror.words, time.monotonic()
        for _ in range(ROUNDS):
            mirror.write_large()
            mirror.await_all()
        assert mirror.words == before
        assert time.monotonic() - begun > ROUNDS * PARTITIONS * LARGE_BYTES / RATE - QUOTA_WINDOW_S


def logs_in(broker, user, password):
    told = broker.properties("SCRAM") | {"sasl.username": user, "sasl.password": password}
    told.pop("sasl.jaas.config")
    try:
        with Cluster(broker.addresses["SCRAM"], security=ClientSecurity.from_properties(told)) as cluster:
            return bool(cluster.metadata([]).brokers)
    except MillraceError:
        return False


@pytest.mark.parametrize("source", ["millrace", "3.9"])
def test_rights_quotas_and_users_go_along_from_a_secured_source(source, brokers, tmp_path):
    (source, _), (target, _) = (
        brokers(source, "source", has_zookeeper=True),
        brokers("millrace", "target", has_zookeeper=True),
    )
    zookeepers = {"source": source.zookeeper, "target": target.zookeeper}
    more = {"acls": True, "quotas": True, "users": True, "access_interval_ms": 500, "zookeepers": zookeepers}
    with ExitStack() as stack:
        mirror = stack.enter_context(SecuredMirror(source, target, "auto", ("SCRAM", "SCRAM"), tmp_path, **more))
        here, there = (stack.enter_context(Cluster(one.bootstrap)) for one in (source, target))
        alice = f"u{uuid4().hex[:8]}"
        Users(here).set_password(alice, [SCRAM], "alices-secret", 4096)
        Quotas(here).alter({"user": alice}, {"consumer_byte_rate": 5e6})
        acl = Acl(f"User:{alice}", "*", AclOperation.READ, PermissionType.ALLOW)
        create_acls(here, [AclBinding(ResourcePattern(ResourceType.TOPIC, mirror.topic, PatternType.LITERAL), acl)])
        mirror.write(1)
        mirror.await_all()
        named = ResourcePattern(ResourceType.TOPIC, f"{mirror.name}.{mirror.topic}", PatternType.LITERAL)
        until(
            lambda: (
                AclBinding(named, acl) in find_acls(there, AclFilter(ResourceType.TOPIC)) and mirror.words is not None
            )
        )
        until(
            lambda: [one.quotas for one in Quotas(there).describe() if one.entity == {"user": alice}],
            [{"consumer_byte_rate": 5e6}].__eq__,
        )
        until(lambda: logs_in(target, alice, "alices-secret"))
        assert not logs_in(target, alice, "another-secret")
        Users(here).delete(alice, [SCRAM])
        until(lambda: not logs_in(target, alice, "alices-secret"))
