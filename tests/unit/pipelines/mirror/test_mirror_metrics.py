"""What an instance of a mirror tells Prometheus, and that the number of its series is bounded."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from millrace.errors import BrokerUnreachableError, GroupHasMembersError, OffsetOutOfRangeError
from millrace_pipelines.mirror.admin import not_ready
from millrace_pipelines.mirror.counters import Counters
from millrace_pipelines.mirror.groups import GroupResult, Outcome
from millrace_pipelines.mirror.instance import Standing
from millrace_pipelines.mirror.metrics import ALL, BOUNDS, Bounds, MirrorCollector
from millrace_pipelines.mirror.pauses import Throttle
from millrace_pipelines.mirror.reachability import Place
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, TopicState
from millrace_pipelines.mirror.stops import Mirrored, foreign, purged

LABELS = ("side", "source", "topic", "partition", "way", "state", "outcome", "kind")
TARGET, EAST = Place("target"), Place("source", "east")


class Service:
    """What the collector asks of a service."""

    def __init__(self, *, leads=True):
        self.counters = Counters()
        self.leads = leads
        self.topic_states = {}

    def standings(self):
        return [Standing("east", has_share=True, leads=self.leads, throttled_s=1.5)]

    def states(self):
        return self.topic_states

    def line(self, topic, partition=0, way=Way.COPY):
        return self.counters.line("east", Mirrored(topic, f"east.{topic}", partition), way)


def scrape(service, troubles=(), bounds=BOUNDS):
    registry = CollectorRegistry()
    registry.register(MirrorCollector(service, lambda: dict(troubles), bounds))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(one.name.removeprefix("millrace_mirror_"), *(one.labels[each] for each in LABELS if each in one.labels)):
            one.value
            for family in families for one in family.samples if not one.name.endswith("_created")}  # fmt: skip


def test_a_partition_tells_its_lag_and_its_newest_record():
    service = Service()
    line = service.line("orders", 3)
    line.next_offset, line.source_end, line.held_back = 70, 100, 8
    line.count(70, 7000, 1_700_000_000_500)
    found = scrape(service)
    assert found["lag_records", "east", "orders", "3"] == 30
    assert found["held_back_records", "east", "orders", "3"] == 8
    assert found["newest_record_timestamp_seconds", "east", "orders", "3"] == 1_700_000_000.5
    assert found["records_total", "east", "orders"] == 70
    assert found["bytes_total", "east", "orders"] == 7000
    assert (found["partitions", "east", "copy"], found["partitions", "east", "follow"]) == (1, 0)
    assert found["throttle_seconds_total", "east"] == 1.5


def test_a_partition_without_records_tells_no_time_of_them():
    service = Service()
    service.line("orders")
    assert not [one for one in scrape(service) if one[0] == "newest_record_timestamp_seconds"]


def test_what_a_topic_has_counted_stays_when_others_take_its_partitions():
    service = Service()
    service.line("orders", 0).count(5, 50, 1)
    service.counters.drop("east", Mirrored("orders", "east.orders", 0))
    service.line("orders", 0).count(2, 20, 1)
    assert scrape(service)["records_total", "east", "orders"] == 7
    assert scrape(service)["bytes_total", "east", "orders"] == 70


@pytest.mark.parametrize(("topics", "partitions", "labels"), [
    (2, 2, {("t0", "0"), ("t0", "1"), ("t1", "0"), ("t1", "1")}),
    (2, 3, {("t0", ALL), ("t1", ALL)}),
    (3, 1, {(ALL, ALL)}),
])  # fmt: skip
def test_many_partitions_are_told_together(topics, partitions, labels):
    service = Service()
    for topic in range(topics):
        for partition in range(partitions):
            line = service.line(f"t{topic}", partition)
            line.next_offset, line.source_end = 0, 10
            line.count(1, 1, 1)
    found = scrape(service, bounds=Bounds(partitions=4, topics=2))
    lags = {tuple(labels): value for (name, _, *labels), value in told(found, "lag_records")}
    assert lags.keys() == labels
    assert sum(lags.values()) == 10 * topics * partitions
    records = {topic: value for (_, _, topic), value in told(found, "records_total")}
    assert records.keys() == {topic for topic, _ in labels}
    assert sum(records.values()) == topics * partitions


def told(found, name):
    return [(key, value) for key, value in found.items() if key[0] == name]


def test_what_has_stopped_and_what_fails_are_counted_by_kind():
    service = Service()
    service.line("a").stop = purged(Mirrored("a", "east.a", 0), 5, 9)
    service.line("b").stop = foreign(Mirrored("b", "east.b", 0))
    service.line("c").trouble = "no leader"
    found = scrape(service)
    stopped = {kind: value for (*_, kind), value in told(found, "partitions_stopped")}
    assert {kind for kind, value in stopped.items() if value} == {"purged", "foreign"}
    assert stopped.keys() == {"purged", "foreign", "recreated", "truncated", "damaged", "refused"}
    assert found["partitions_failing", "east"] == 1


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leader_tells_of_all_topics_and_groups(leads):
    service = Service(leads=leads)
    for topic, state in (("a", State.MIRRORING), ("b", State.PAUSED)):
        one = TopicState(source="east", topic=topic, target_topic=f"east.{topic}", way=Way.COPY, state=state)
        service.topic_states[one.key] = one
    groups = service.counters.groups_of("east")
    groups.count(GroupResult("g", Outcome.MOVED, {}))
    groups.count(GroupResult("g", Outcome.GONE_ON, {}))
    groups.count(GroupResult("busy", Outcome.HAS_MEMBERS, {}, (GroupHasMembersError("busy"),)))
    groups.count(GroupResult("bad", Outcome.MOVED, {}, (OffsetOutOfRangeError("gone"),)))
    found = scrape(service)
    assert found["group_moves_total", "east"] == 2
    assert found["leader", "east"] == leads
    of_leader = {
        key: value for name in ("topics", "groups", "group_faults") for key, value in told(found, name) if value
    }
    of_all = {
        ("topics", "east", "mirroring"): 1,
        ("topics", "east", "paused"): 1,
        ("groups", "east", "gone on"): 1,
        ("groups", "east", "has members"): 1,
        ("groups", "east", "moved"): 1,
        ("group_faults", "east"): 1,
    }
    assert of_leader == (of_all if leads else {})


def test_a_group_that_is_well_again_is_no_fault():
    groups = Counters().groups_of("east")
    groups.count(GroupResult("g", Outcome.FAILED, {}, (BrokerUnreachableError("away"),)))
    groups.count(GroupResult("g", Outcome.UNCHANGED, {}))
    assert (groups.faulty, groups.outcomes) == (set(), {"g": Outcome.UNCHANGED})


def test_clusters_that_do_not_answer_are_told():
    found = scrape(Service(), {TARGET: "", EAST: "refused"})
    assert found["cluster_reachable", "target", ""] == 1
    assert found["cluster_reachable", "source", "east"] == 0


@pytest.mark.parametrize(("has_share", "troubles", "reasons"), [
    (True, {TARGET: "", EAST: ""}, []),
    (False, {}, ["source east: it has no share of the partitions yet"]),
    (True, {TARGET: "127.0.0.1:1 refuses", EAST: ""}, ["target: 127.0.0.1:1 refuses"]),
    (True, {EAST: "no answer"}, ["source east: no answer"]),
])  # fmt: skip
def test_an_instance_is_ready_with_a_share_and_clusters_that_answer(has_share, troubles, reasons):
    assert not_ready([Standing("east", has_share, leads=False, throttled_s=0)], troubles) == reasons


def test_a_throttle_knows_how_long_it_held_up_reading():
    throttle = Throttle(100)
    throttle.took(300, 10.0)
    for now_s in (10.0, 11.0, 12.5, 20.0):
        throttle.pause_s(now_s)
    assert throttle.waited_s == 2.5
