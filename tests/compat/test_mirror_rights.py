"""What a mirror's user has to be allowed on either side: with that all works, and without any of it the mirror says so.

Each side lets in whoever has the right password, certificate or token, and denies what no list allows.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster
from millrace.errors import MillraceError
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings_file import read_settings
from millrace_support.guarded_brokers import PASSWORD, PROTOCOLS, USER, GuardedBroker
from millrace_support.mirrored_records import contents, read, write
from millrace_support.token_server import TokenServer
from millrace_support.waiting import until

PARTITIONS = 2
LISTENERS = ["SCRAM", "PLAIN", "MUTUAL", "TOKEN"]
PAIRS = [
    ("millrace", "millrace", "follow"),
    ("3.9", "millrace", "follow"),
    ("4.1", "millrace", "follow"),
    ("millrace", "millrace", "copy"),
    ("millrace", "3.9", "copy"),
    ("millrace", "4.1", "copy"),
    ("3.9", "4.1", "copy"),
]
pytestmark = pytest.mark.peers

# What is needed, and how the mirror calls it: of a source, of any target, and by the way of mirroring. NAME is the
# source's name, and TOPIC one of its two topics.
OF_SOURCE = {
    "READ TOPIC __mirror_states": "Read on topic __mirror_states",
    "READ TOPIC TOPIC": "Read on topic TOPIC",
    "DESCRIBE_CONFIGS TOPIC TOPIC": "DescribeConfigs on topic TOPIC",
}
OF_TARGET = {
    "CREATE TOPIC __mirror_*": "Create on topic",
    "READ TOPIC __mirror_*": "Read on topic __mirror_states",
    "WRITE TOPIC __mirror_states": "Write on topic __mirror_states",
    "READ GROUP millrace-mirror-NAME": "Read on group millrace-mirror-NAME",
    "CREATE TOPIC NAME.TOPIC": "Create on topic NAME.TOPIC",
    "READ TOPIC NAME.TOPIC": "Read on topic NAME.TOPIC",
    "DESCRIBE_CONFIGS TOPIC NAME.TOPIC": "DescribeConfigs on topic NAME.TOPIC",
}
BY_WAY = {
    "follow": {"CLUSTER_ACTION CLUSTER kafka-cluster": "ClusterAction on the cluster"},
    "copy": {
        "WRITE TOPIC __mirror_offsets": "Write on topic __mirror_offsets",
        "WRITE TOPIC NAME.TOPIC": "Write on topic NAME.TOPIC",
        "WRITE TRANSACTIONAL_ID millrace-mirror-NAME-*": "Write on transactional ids that begin with",
    },
}
OF_ALL = ("__mirror_", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")  # rights without which no topic can be mirrored
NOT_TO_MIRROR = ("READ TOPIC __mirror_states", "DESCRIBE_CONFIGS TOPIC NAME.TOPIC")  # rights that only settings need


@pytest.fixture(scope="module")
def tokens():
    with TokenServer({USER: PASSWORD}) as started:
        yield started


@pytest.fixture(scope="module")
def brokers(find_peer, tmp_path_factory, request, tokens):
    """Starts each broker when it is first asked for: by its kind, and whether it is a source or a target."""
    started = {}
    with ExitStack() as stack:

        def broker(kind, role):
            if (kind, role) not in started:
                zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if kind == "3.9" else ""
                folder = tmp_path_factory.mktemp(f"{kind}-{role}")
                one = GuardedBroker(kind, folder, tokens, find_peer=find_peer, zookeeper=zookeeper)
                started[kind, role] = stack.enter_context(one)
            return started[kind, role]

        yield broker


class Guarded:
    """A source with two topics, a target, and the mirror's user between them, who may do what is given."""

    def __init__(self, stack, source, target, way):
        self.sides = {"source": source, "target": target}
        self.way = way
        self.name, self.topics = f"n{uuid4().hex[:6]}", [f"t{uuid4().hex[:8]}" for _ in range(2)]
        self.listeners = {"source": "PLAIN", "target": "PLAIN"}
        self._stack = stack
        with Cluster(source.bootstrap) as cluster:
            for topic in self.topics:
                Admin(cluster).create_topic(topic, PARTITIONS)
        for seed, topic in enumerate(self.topics):
            write(source.bootstrap, topic, PARTITIONS, 10, seed)

    def rights(self, side):
        """Returns what the side has to allow, each with how the mirror calls it and the topic it is about, if any."""
        table = OF_SOURCE if side == "source" else OF_TARGET | BY_WAY[self.way]
        found = {}
        for topic in self.topics:
            for right, phrase in table.items():
                found[self._named(right, topic)] = self._named(phrase, topic)
        return found

    def _named(self, text, topic):
        return text.replace(" TOPIC TOPIC", f" TOPIC {topic}").replace("topic TOPIC", f"topic {topic}").replace(
            "NAME.TOPIC", f"NAME.{topic}"
        ).replace("NAME", self.name)  # fmt: skip

    def permit(self, side, *rights):
        self.sides[side].permit(*rights)
        self._stack.callback(self.sides[side].forbid, *rights)

    def permit_all(self, but=()):
        for side in self.sides:
            self.permit(side, *(one for one in self.rights(side) if (side, one) != but))

    def settings(self, **given):
        told = {}
        for side, broker in self.sides.items():
            listener = self.listeners[side]
            told[side] = {"bootstrap": broker.addresses[listener], "properties": broker.properties(listener)}
        source = {"name": self.name, **told["source"]}
        options = {"topics": self.topics, "way": self.way, "sources": [source], "target": told["target"]}
        return read_settings(None, options | given)

    def mirror(self, **given):
        """Mirrors what there is; returns the sentences about what can't be."""
        told = []
        with MirrorService(self.settings(**given), tell=told.append) as service:
            try:
                service.run(once=True)
            except MillraceError as error:
                told.append(str(error))
            return [*told, *service.stopped().values()]

    @contextmanager
    def running(self):
        """Makes the context in which a mirror runs; yields the sentences that it tells."""
        told = []
        with (
            ThreadPoolExecutor(1) as thread,
            MirrorService(self.settings(topics_interval_ms=500), tell=told.append) as service,
        ):
            done = thread.submit(service.run)
            try:
                yield told
            finally:
                service.stop()
                done.result()
        assert service.stopped() == {}

    def is_complete(self, topic):
        places = [(side, partition) for side in self.sides for partition in range(PARTITIONS)]
        named = {"source": topic, "target": f"{self.name}.{topic}"}
        with Cluster(self.sides["target"].bootstrap) as cluster:
            if cluster.metadata([named["target"]]).lacks([named["target"]]):
                return False
        found = {(side, one): contents(read(self.sides[side].bootstrap, named[side], one)) for side, one in places}
        return all(found["source", one] == found["target", one] for one in range(PARTITIONS))


@pytest.fixture
def guarded(brokers, request):
    source, target, way = request.param
    with ExitStack() as stack:
        yield Guarded(stack, brokers(source, "source"), brokers(target, "target"), way)


def logins(pair):
    """Returns the listeners of a pair: each of the source's, and of the target's, at least once."""
    known = [[one for one in LISTENERS if one != "TOKEN" or kind == "millrace"] for kind in pair[:2]]
    return [(known[0][one % len(known[0])], known[1][(one + 1) % len(known[1])]) for one in range(max(map(len, known)))]


@pytest.mark.parametrize(
    ("guarded", "source", "target"),
    [(pair, *login) for pair in PAIRS for login in logins(pair)],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
    indirect=["guarded"],
)
def test_a_user_with_these_rights_alone_mirrors(guarded, source, target):
    assert {source, target} <= PROTOCOLS.keys()
    guarded.listeners = {"source": source, "target": target}
    guarded.permit_all()
    assert guarded.mirror() == []
    assert all(map(guarded.is_complete, guarded.topics))


def lacking():
    for pair in (PAIRS[0], PAIRS[3], PAIRS[-1]):
        tables = [("source", one) for one in OF_SOURCE], [("target", one) for one in OF_TARGET | BY_WAY[pair[2]]]
        yield from ((pair, *one) for one in chain(*tables))


EACH_RIGHT = pytest.mark.parametrize(
    ("guarded", "side", "right"),
    list(lacking()),
    ids=lambda one: one.replace(" ", "_") if isinstance(one, str) else "-".join(one),
    indirect=["guarded"],
)


@EACH_RIGHT
def test_without_one_right_the_mirror_says_which(guarded, side, right, caplog):
    topic, other = guarded.topics
    given_up = guarded._named(right, topic)
    guarded.permit_all(but=(side, given_up))
    with caplog.at_level(logging.WARNING):
        told = guarded.mirror() + guarded.mirror()
    told += [one.getMessage() for one in caplog.records if "producer" not in one.name]
    name = f"source {guarded.name}" if side == "source" else "the target"
    wanted = f"{name}: the mirror's user lacks the right {guarded.rights(side)[given_up]}"
    assert any(wanted in one and "millrace acls add" in one for one in told), told
    if not any(one in right for one in OF_ALL):
        assert guarded.is_complete(other)
    assert guarded.is_complete(topic) == (right in NOT_TO_MIRROR)
    guarded.permit(side, given_up)
    assert guarded.mirror() == []
    assert all(map(guarded.is_complete, guarded.topics))


@EACH_RIGHT
def test_a_running_mirror_goes_on_by_itself_once_it_has_the_right(guarded, side, right, caplog):
    given_up = guarded._named(right, guarded.topics[0])
    guarded.permit_all(but=(side, given_up))
    wanted = f"the mirror's user lacks the right {guarded.rights(side)[given_up]}"
    with caplog.at_level(logging.WARNING), guarded.running() as told:
        until(lambda: [*told, *caplog.messages], lambda told: any(wanted in one for one in told))
        guarded.permit(side, given_up)
        until(lambda: [*map(guarded.is_complete, guarded.topics)], all)
