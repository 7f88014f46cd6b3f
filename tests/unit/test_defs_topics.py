"""Which partitions come and go, and when a table lags behind its topic."""

import pytest

from millrace_pipelines.defs.topics.assets import materializations
from millrace_pipelines.defs.topics.offsets import OffsetBounds, TopicOffsets
from millrace_pipelines.defs.topics.partitions import partition_changes


def offsets(*bounds, topic_id="id"):
    return TopicOffsets("events", topic_id, {index: OffsetBounds(*pair) for index, pair in enumerate(bounds)})


@pytest.mark.parametrize(
    ("topics", "known", "added", "removed"),
    [
        ([], [], [], []),
        (["b", "a"], [], ["a", "b"], []),
        (["a"], ["a", "gone"], [], ["gone"]),
        (["__consumer_offsets", "_mine"], [], ["_mine"], []),
        ([], ["__consumer_offsets"], [], ["__consumer_offsets"]),
    ],
)
def test_partition_changes(topics, known, added, removed):
    assert partition_changes(topics, known) == (added, removed)


@pytest.mark.parametrize(
    ("next_offsets", "ahead"),
    [
        ({}, True),
        ({0: 5, 1: 9}, True),
        ({0: 5, 1: 10}, False),
        ({0: 5}, True),
        ({1: 10}, False),  # partition 0 is empty: retention took its records
    ],
)
def test_is_ahead_of(next_offsets, ahead):
    assert offsets((5, 5), (3, 10)).is_ahead_of(next_offsets) is ahead


def test_an_empty_topic_is_ahead_of_nothing():
    assert not offsets((0, 0)).is_ahead_of({})


def test_version_moves_with_the_end_offsets_and_the_topic_id_alone():
    version = offsets((0, 5), (0, 5)).version
    assert offsets((3, 5), (0, 5)).version == version
    assert offsets((0, 5), (0, 6)).version != version
    assert offsets((0, 5), (0, 5), topic_id="other").version != version


def test_a_report_shows_the_offsets():
    [materialization] = materializations([offsets((2, 5), (0, 4))])
    assert materialization.partition == "events"
    assert materialization.metadata["records"].value == 7
    rows = [record.data for record in materialization.metadata["offsets"].records]
    assert rows == [
        {"partition": 0, "log start offset": 2, "end offset": 5, "records": 3},
        {"partition": 1, "log start offset": 0, "end offset": 4, "records": 4},
    ]
