"""Which topics are told by name, and that no series loses or counts anything twice."""

from itertools import pairwise
from random import Random

from millrace_broker.admin.collectors.traffic import FIELDS, TOPICS_AT_ONCE, TopicSeries
from millrace_broker.metrics import TopicTraffic

BYTES_IN = FIELDS.index("bytes_in")


def look(series, traffic):
    for _ in series.look(traffic):
        pass


def test_every_topic_has_a_name_while_there_is_room():
    series = TopicSeries(2)
    look(series, {"a": TopicTraffic(records_in=1, bytes_in=10), "b": TopicTraffic(bytes_out=5)})
    assert series.named == {"a": (1, 10, 0, 0, 0), "b": (0, 0, 5, 0, 0)}
    assert not any(series.others)
    assert series.totals == (1, 10, 5, 0, 0)


def test_a_busier_topic_gets_the_name_at_the_next_look_and_begins_at_0():
    series = TopicSeries(1)
    quiet, busy = TopicTraffic(bytes_in=100), TopicTraffic(bytes_in=60)
    traffic = {"quiet": quiet, "busy": busy}
    look(series, traffic)
    assert (series.named.keys(), series.others[BYTES_IN]) == ({"quiet"}, 60)
    busy.bytes_in += 200
    look(series, traffic)
    assert (series.named.keys(), series.others[BYTES_IN]) == ({"quiet"}, 260)
    busy.bytes_in += 5
    quiet.bytes_in += 1
    look(series, traffic)
    assert {topic: one[BYTES_IN] for topic, one in series.named.items()} == {"busy": 5}
    assert series.others[BYTES_IN] == 261
    assert series.totals[BYTES_IN] == 366


def test_a_look_that_ends_early_is_made_up_for_by_the_next():
    series = TopicSeries(5 * TOPICS_AT_ONCE)
    traffic = {f"t{number}": TopicTraffic(bytes_in=1) for number in range(3 * TOPICS_AT_ONCE)}
    next(series.look(traffic))
    assert series.totals[BYTES_IN] == TOPICS_AT_ONCE
    look(series, traffic)
    assert series.totals[BYTES_IN] == sum(one[BYTES_IN] for one in series.named.values()) == len(traffic)


def test_a_topic_that_was_away_begins_at_0_again():
    series = TopicSeries(5)
    look(series, {"a": TopicTraffic(bytes_in=100)})
    look(series, {"a": TopicTraffic(bytes_in=30)})
    assert series.named["a"][BYTES_IN] == series.totals[BYTES_IN] == 130


def test_a_deleted_topic_leaves_its_part_in_the_total():
    series = TopicSeries(5)
    look(series, {"a": TopicTraffic(bytes_in=100)})
    look(series, {})
    assert series.named == {}
    assert series.totals[BYTES_IN] == 100


def test_rates_add_up_whatever_the_traffic():
    random, series = Random(7), TopicSeries(3)
    traffic = {f"t{number}": TopicTraffic() for number in range(8)}
    before = {}
    for _ in range(200):
        came = 0
        for one in traffic.values():
            size = random.choice((0, 0, 1, 50, 3000))
            one.bytes_in += size
            came += size
        look(series, traffic)
        now = {topic: one[BYTES_IN] for topic, one in series.named.items()} | {"(other)": series.others[BYTES_IN]}
        assert len(series.named) == 3
        assert sum(count - before.get(name, 0) for name, count in now.items()) == came
        before = now
    assert series.totals[BYTES_IN] == sum(one.bytes_in for one in traffic.values())


def test_named_series_never_fall():
    random, series = Random(3), TopicSeries(4)
    traffic = {f"t{number}": TopicTraffic() for number in range(9)}
    looks = []
    for _ in range(100):
        for one in traffic.values():
            one.bytes_in += random.randrange(1000)
        look(series, traffic)
        looks.append(dict(series.named))
    assert all(after[name] >= now[name] for now, after in pairwise(looks) for name in now.keys() & after.keys())
