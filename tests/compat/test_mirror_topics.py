"""Topics of a source and their mirrors at a target, of Millrace and of Apache Kafka."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.client.producer import Producer
from millrace.errors import TopicExistsError
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.settings_file import read_settings
from millrace_pipelines.mirror.states import State, States, TopicState
from millrace_pipelines.mirror.topic_keeper import TopicKeeper
from millrace_pipelines.mirror.topic_plan import Create, DeleteTarget, Grow, LeaveAlone
from millrace_support.waiting import until

MILLRACE = ("millrace", "other millrace", "third millrace")
PAIRS = [MILLRACE[:2], ("3.9", "millrace"), ("4.1", "millrace"), ("millrace", "3.9"), ("millrace", "4.1")]


@pytest.fixture(scope="module")
def start(find_peer, tmp_path_factory, request):
    """Returns a function that starts a broker once, and returns its address."""
    started = {}
    with ExitStack() as stack:

        def begun(name):
            folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
            if name in MILLRACE:
                return stack.enter_context(BrokerProcess(folder)).bootstrap
            at = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if name == "3.9" else None
            return stack.enter_context(KafkaBroker(find_peer(name), folder, zookeeper=at)).bootstrap

        def bootstrap(name):
            if name not in started:
                started[name] = begun(name)
            return started[name]

        yield bootstrap


class Pair:
    """A source and a target, and keepers of one source's topics between them; each has a name of its own."""

    def __init__(self, stack, source, target):
        self.name = f"s{uuid4().hex[:8]}"
        self.topic = f"t{uuid4().hex[:8]}"
        self.target_topic = f"{self.name}.{self.topic}"
        self.bootstraps = source, target
        self.source, self.target = (stack.enter_context(Cluster(one)) for one in (source, target))
        self.states = States(self.target, stack.enter_context(Producer(broker_list=target)))
        self.states.create()

    def keeper(self, **options):
        source, target = self.bootstraps
        told = {"sources": [{"name": self.name, "bootstrap": source}], "target": {"bootstrap": target}}
        settings = read_settings(None, {"topics": f"{self.topic}.*", **told, **options})
        return TopicKeeper(settings, settings.sources[0], self.source, self.target, self.states)

    def state(self, suffix=""):
        return self.states.read().get(f"{self.name}/{self.topic}{suffix}")

    def at_target(self, suffix=""):
        return Admin(self.target).topics().get(self.target_topic + suffix)

    def properties(self, suffix=""):
        found = Configs(self.target).describe(ResourceKind.TOPIC, self.target_topic + suffix)
        return {one.name: one.value for one in found if one.source == "topic"}


def pair_of(names):
    return "-".join(names).replace(" ", "-")


@pytest.fixture(params=PAIRS, ids=pair_of)
def pair(request, start):
    source, target = (start(one) for one in request.param)
    with ExitStack() as stack:
        made = Pair(stack, source, target)
        made.is_followed = request.param[1] in MILLRACE
        yield made


@pytest.fixture
def millraces(start):
    with ExitStack() as stack:
        yield Pair(stack, *(start(one) for one in MILLRACE[:2]))


def recreate(cluster, topic, partitions):
    """Deletes a topic and creates it again, once it is deleted."""

    def create():
        try:
            Admin(cluster).create_topic(topic, partitions)
        except TopicExistsError:
            return False
        return True

    Admin(cluster).delete_topic(topic)
    until(create)


def kept_until(keeper, look, wanted):
    """Keeps topics until what `look` returns is as wanted: brokers show changes a moment after they answer."""

    def looked():
        keeper.keep()
        return look()

    until(looked, wanted.__eq__)


def done(keeper):
    return [one for one in keeper.keep() if not isinstance(one, LeaveAlone)]


def test_topics_are_created_grow_change_and_go(pair):
    source, keeper = Admin(pair.source), pair.keeper(deleted_topics="delete")
    source.create_topic(pair.topic, 2, config={"retention.ms": "86400000", "min.insync.replicas": "1"})
    assert [type(one) for one in done(keeper)] == [Create]
    state = pair.state()
    assert (state.state, state.way) == (State.MIRRORING, Way.FOLLOW if pair.is_followed else Way.COPY)
    assert state.target_topic_id == str(pair.at_target().topic_id)
    assert state.source_topic_id == str(source.topics()[pair.topic].topic_id)
    assert state.origins == (pair.source.metadata([]).cluster_id,)
    of_mirror = {"mirror.source": pair.name} if pair.is_followed else {}
    kept_until(keeper, pair.properties, {"retention.ms": "86400000", **of_mirror})
    assert done(keeper) == []

    source.create_partitions(pair.topic, 5)
    change = {"cleanup.policy": "compact,delete", "max.message.bytes": "2000000"}
    Configs(pair.source).change(ResourceKind.TOPIC, pair.topic, change, ["retention.ms"])
    kept_until(keeper, pair.properties, {**change, **of_mirror})
    assert len(pair.at_target().partitions) == 5
    assert done(keeper) == []

    source.delete_topic(pair.topic)
    assert done(keeper) == []  # it is looked at twice
    assert [type(one) for one in done(keeper)] == [DeleteTarget]
    assert pair.state() is None
    assert pair.at_target() is None
    assert done(keeper) == []


def test_a_topic_that_is_recreated_stops_until_that_is_accepted(pair):
    source, keeper = Admin(pair.source), pair.keeper()
    source.create_topic(pair.topic, 1)
    source.create_topic(f"{pair.topic}-b", 1)
    keeper.keep()
    before = pair.state()
    recreate(pair.source, pair.topic, 3)
    assert done(keeper) == []  # it is looked at twice
    keeper.keep()
    state = pair.state()
    assert state.state is State.STOPPED
    assert "deleted and created again at the source" in state.reason
    assert "--accept-recreated-topic" in state.reason
    assert pair.state("-b").state is State.MIRRORING
    assert done(keeper) == []

    accepting = pair.keeper(accept_recreated_topic=True)
    kept_until(accepting, lambda: pair.state().state, State.MIRRORING)
    kept_until(accepting, lambda: len(pair.at_target().partitions), 3)
    state = pair.state()
    assert (state.state, state.reason) == (State.MIRRORING, "")
    assert state.source_topic_id == str(source.topics()[pair.topic].topic_id)
    assert len(pair.at_target().partitions) == 3
    assert state.target_topic_id == str(pair.at_target().topic_id)
    assert (state.target_topic_id != before.target_topic_id) is pair.is_followed


def test_a_topic_that_is_there_already_stops_alone_and_goes_on_once_it_is_gone(pair):
    for suffix in ("", "-b"):
        Admin(pair.source).create_topic(pair.topic + suffix, 1)
    Admin(pair.target).create_topic(pair.target_topic, 1)
    keeper = pair.keeper()
    keeper.keep()
    assert "is at the target already and is no mirror" in pair.state().reason
    assert pair.state("-b").state is State.MIRRORING
    assert done(keeper) == []
    Admin(pair.target).delete_topic(pair.target_topic)
    kept_until(keeper, lambda: pair.state().target_topic_id is not None, True)
    assert pair.state().state is State.MIRRORING
    assert pair.state().target_topic_id == str(pair.at_target().topic_id)


def test_a_property_that_the_target_does_not_take_is_left_out_and_told(pair, caplog):
    """As where the two are of different versions."""
    keeper = pair.keeper()
    state = TopicState(source=pair.name, topic=pair.topic, target_topic=pair.target_topic, way=Way.COPY)
    with caplog.at_level(logging.WARNING):
        keeper._create(state, 1, {"retention.ms": "86400000", "no.such": "1"})
    assert pair.state().target_topic_id == str(pair.at_target().topic_id)
    until(pair.properties, {"retention.ms": "86400000"}.__eq__)
    assert caplog.text.count("keeps its own no.such") == 1
    keeper._change(pair.target_topic, {"no.such": "1", "retention.ms": "1000000"}, ())
    keeper._change(pair.target_topic, {"no.such": "2", "retention.ms": "2000000", "segment.ms": "5000000"}, ())
    until(pair.properties, {"retention.ms": "2000000", "segment.ms": "5000000"}.__eq__)


def test_with_new_topics_from_now_only_what_follows_is_mirrored(pair):
    Admin(pair.source).create_topic(pair.topic, 2)
    with Producer(broker_list=pair.bootstraps[0]) as producer:
        producer.send(pair.topic, b"before", partition=1)
    keeper = pair.keeper(new_topics="now")
    keeper.keep()
    assert pair.state().starts == {0: 0, 1: 1}
    Admin(pair.source).create_partitions(pair.topic, 3)
    keeper.keep()
    assert pair.state().starts == {0: 0, 1: 1}


def test_a_failure_stops_its_topic_alone_and_is_tried_again_later(millraces, caplog):
    """More partitions than a topic may have at the target: as the source may allow more."""
    pair = millraces
    for suffix in ("", "-b"):
        Admin(pair.source).create_topic(pair.topic + suffix, 1)
    keeper = pair.keeper(replication_factor=7)
    keeper.keep()
    for suffix in ("", "-b"):
        assert pair.state(suffix).state is State.STOPPED
        assert pair.state(suffix).may_pass
        assert "7" in pair.state(suffix).reason
    assert done(keeper) == []  # not before a minute has passed
    following = pair.keeper()
    following.keep()
    assert {pair.state().state, pair.state("-b").state} == {State.MIRRORING}


def test_a_topic_that_is_deleted_at_the_target_waits_until_it_is_resumed(millraces):
    pair = millraces
    Admin(pair.source).create_topic(pair.topic, 1)
    keeper = pair.keeper()
    keeper.keep()
    Admin(pair.target).delete_topic(pair.target_topic)
    assert done(keeper) == []  # it is looked at twice
    keeper.keep()
    assert "was deleted at the target" in pair.state().reason
    assert done(keeper) == []
    pair.states.write(pair.state().resumed())
    keeper.keep()
    assert pair.state().state is State.MIRRORING
    assert pair.at_target() is not None


@pytest.mark.parametrize("keep_names", [False, True])
@pytest.mark.parametrize("length", [2, 3])
def test_clusters_that_mirror_one_another_come_to_rest(start, length, keep_names):
    """A topic of the first goes round once, as far as the last, and never comes home."""
    with ExitStack() as stack:
        brokers = [start(one) for one in MILLRACE[:length]]
        topic = f"ring{uuid4().hex[:8]}"
        steps = [Pair(stack, brokers[one - 1], brokers[one]) for one in range(length)]
        Admin(steps[0].target).create_topic(topic, 1)
        keepers = [one.keeper(topics=f".*{topic}", keep_names=keep_names) for one in steps]
        for _ in range(length + 1):
            for keeper in keepers:
                keeper.keep()
        assert [done(keeper) for keeper in keepers] == [[]] * length
        assert [sum(topic in name for name in Admin(one.target).topics()) for one in steps] == [1] * length
        assert "comes from here" in keepers[0].keep()[0].reason


def test_two_keepers_at_a_time_do_the_same_work_once(millraces):
    """As while the lead of the group goes from one instance to another."""
    pair = millraces
    suffixes = [f"-{one}" for one in range(8)]
    for suffix in suffixes:
        Admin(pair.source).create_topic(pair.topic + suffix, 1)

    def keep():
        with ExitStack() as stack:
            other = Pair(stack, *pair.bootstraps)
            other.name, other.topic = pair.name, pair.topic
            keeper = other.keeper()
            while keeper.keep():
                pass

    with ThreadPoolExecutor() as threads:
        for attempt in (2, 5):
            for one in [threads.submit(keep) for _ in range(3)]:
                one.result()
            for suffix in suffixes:
                state = pair.state(suffix)
                assert (state.state, state.reason) == (State.MIRRORING, "")
                assert state.target_topic_id == str(pair.at_target(suffix).topic_id)
                assert len(pair.at_target(suffix).partitions) == max(1, attempt - 3)
                Admin(pair.source).create_partitions(pair.topic + suffix, attempt)


def test_partitions_that_another_keeper_has_added_are_no_failure(millraces):
    pair = millraces
    Admin(pair.source).create_topic(pair.topic, 2)
    keeper = pair.keeper()
    keeper.keep()
    keeper._try(Grow(pair.state(), 2))
    assert pair.state().state is State.MIRRORING
