"""Which topics are new, gone or have moved between two looks, and what is reported of them."""

import random

import dagster as dg
import pytest

from millrace.client import LogOffsets
from millrace_pipelines.defs.ticks import pack_cursor, unpack_cursor
from millrace_pipelines.defs.topic_sensor import (
    Look,
    Seen,
    TopicOffsets,
    cursor_of,
    materializations,
    seen_by,
    summary,
    topic_changes,
)

KEY = dg.AssetKey(["lake", "topic", "events"])
NOTHING = Seen({}, frozenset())


def topic(*logs, name="events", topic_id="id"):
    return TopicOffsets(name, topic_id, {index: LogOffsets(*offsets) for index, offsets in enumerate(logs)})


def look(*names, failed=(), end=5, topic_id="id"):
    found = {name: topic((0, end), name=name, topic_id=topic_id) for name in names}
    return Look(found, dict.fromkeys(failed, "no leader"))


def names(topics):
    return [one.topic for one in topics]


def test_new_topics_are_added_and_those_that_moved_are_reported_once():
    first = topic_changes(NOTHING, look("b", "a"), [])
    assert (first.added, first.gone, names(first.moved)) == (["a", "b"], [], ["a", "b"])
    second = topic_changes(first.seen, look("b", "a"), ["a", "b"])
    assert (second.added, second.gone, second.moved) == ([], [], [])
    third = topic_changes(second.seen, Look({**look("a").topics, **look("b", end=6).topics}, {}), ["a", "b"])
    assert names(third.moved) == ["b"]
    fourth = topic_changes(third.seen, look("a", "b", end=6, topic_id="created again"), ["a", "b"])
    assert names(fourth.moved) == ["a", "b"]


def test_a_topic_is_gone_after_two_looks_in_a_row_without_it():
    seen = topic_changes(NOTHING, look("a", "b"), []).seen
    once = topic_changes(seen, look("a"), ["a", "b"])
    assert (once.gone, once.seen.missing) == ([], {"b"})
    twice = topic_changes(once.seen, look("a"), ["a", "b"])
    assert (twice.gone, twice.seen.missing) == (["b"], frozenset())
    assert "b" not in twice.seen.digests


def test_a_topic_that_comes_back_is_missing_from_the_start_the_next_time_and_has_not_moved():
    seen = topic_changes(NOTHING, look("a"), []).seen
    for _ in range(3):
        without = topic_changes(seen, look(), ["a"])
        assert without.gone == []
        back = topic_changes(without.seen, look("a"), ["a"])
        assert (back.added, back.moved, back.seen.missing) == ([], [], frozenset())
        seen = back.seen


def test_a_broker_that_answers_with_no_topics_once_deletes_nothing():
    known = [f"topic-{number}" for number in range(50)]
    seen = topic_changes(NOTHING, look(*known), []).seen
    empty = topic_changes(seen, look(), known)
    assert empty.gone == []
    after = topic_changes(empty.seen, look(*known), known)
    assert (after.added, after.gone, after.moved) == ([], [], [])


def test_a_topic_that_can_not_be_looked_at_stays_what_it_was():
    seen = topic_changes(NOTHING, look("a", "bad"), []).seen
    for _ in range(3):
        changes = topic_changes(seen, look("a", failed=["bad"]), ["a", "bad"])
        assert (changes.added, changes.gone, changes.moved) == ([], [], [])
        seen = changes.seen
    assert topic_changes(seen, look("a", "bad"), ["a", "bad"]).moved == []
    assert topic_changes(NOTHING, look(failed=["new and bad"]), []).added == []


def test_an_internal_topic_that_became_a_partition_is_removed():
    seen = topic_changes(NOTHING, look(), ["__consumer_offsets"]).seen
    assert topic_changes(seen, look(), ["__consumer_offsets"]).gone == ["__consumer_offsets"]


def test_a_cursor_keeps_what_was_seen():
    seen = topic_changes(NOTHING, look("a", "ü"), ["gone"]).seen
    assert seen_by(cursor_of(seen)) == seen


@pytest.mark.parametrize(
    "cursor",
    [
        None,
        "",
        "nonsense",
        '{"events": "id/5"}',  # as an older version wrote it
        "AAAA",
        pack_cursor(None),
        pack_cursor(["a"]),
        pack_cursor({"digests": []}),
        pack_cursor({"digests": {}, "missing": {}}),
        cursor_of(NOTHING)[:-4],
    ],
)
def test_garbage_in_a_cursor_is_nothing_seen(cursor):
    assert seen_by(cursor) == NOTHING


def test_what_is_no_text_in_a_cursor_is_left_out():
    cursor = pack_cursor({"digests": {"a": 1, "b": "x"}, "missing": [None, "c"]})
    assert seen_by(cursor) == Seen({"b": "x"}, frozenset({"c"}))
    assert unpack_cursor(cursor) is not None


def test_a_cursor_of_ten_thousand_topics_is_small():
    chosen = random.Random(7)
    found = {
        name: topic((0, chosen.randrange(10**9)), name=name, topic_id=str(chosen.random()))
        for name in (f"department-{number % 40}.orders-{number}" for number in range(10_000))
    }
    assert len(cursor_of(topic_changes(NOTHING, Look(found, {}), []).seen)) < 130_000


def test_a_tick_says_what_it_found():
    def said(seen, found, known):
        return summary(found, topic_changes(seen, found, known))

    seen = topic_changes(NOTHING, look("a", "b"), []).seen
    assert said(seen, look("a", "b"), ["a", "b"]) == "2 topics, none moved"
    assert said(seen, look("a", "b", end=6), ["a", "b"]) == "2 topics, 2 moved"
    assert said(seen, look("a", failed=["b"]), ["a", "b"]) == (
        "2 topics, none moved, 1 left out, as the log of this tick says"
    )
    assert said(seen, look("a"), ["a", "b"]) == (
        "1 topic, none moved, 1 missing, and gone if the next look lacks them too"
    )


def test_a_version_moves_with_the_logs_ends_and_the_topic_id_alone():
    version = topic((0, 5), (0, 5)).version
    assert topic((3, 5), (0, 5)).version == version
    assert topic((0, 5), (0, 6)).version != version
    assert topic((0, 5), (0, 5), topic_id="other").version != version


def test_a_report_shows_the_offsets():
    [materialization] = materializations([topic((2, 5), (0, 4)), topic(name="ignored")], {"events": KEY})
    assert materialization.asset_key == KEY
    assert materialization.metadata["records"].value == 7
    rows = [record.data for record in materialization.metadata["offsets"].records]
    assert rows == [
        {"partition": 0, "log start offset": 2, "end offset": 5, "records": 3},
        {"partition": 1, "log start offset": 0, "end offset": 4, "records": 4},
    ]
