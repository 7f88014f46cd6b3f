"""Which partitions come and go, and when a table lags behind its topic."""

import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.defs.loads.sensors import is_load_due
from millrace_pipelines.defs.topics.assets import materializations
from millrace_pipelines.defs.topics.offsets import OffsetBounds, TopicOffsets
from millrace_pipelines.defs.topics.partitions import partition_changes
from millrace_pipelines.spark.envelope import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import TOPIC_ID_PROPERTY, TOPIC_PROPERTY, LedgerEntry, ledger_of, swap


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


@pytest.mark.parametrize(
    ("next_offsets", "behind"), [({}, False), ({0: 5, 1: 10}, False), ({1: 11}, True), ({0: 0, 2: 0}, True)]
)
def test_is_behind(next_offsets, behind):
    assert offsets((5, 5), (3, 10)).is_behind(next_offsets) is behind


def loaded(directory, next_offset):
    properties = {TOPIC_PROPERTY: "events", TOPIC_ID_PROPERTY: "id"}
    table = Table.load_or_create(
        directory, OsFileSystem(), schema=ENVELOPE_SCHEMA, name="events", configuration=properties
    )
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, next_offset)})
    table.commit([], expected=expected, transactions=transactions, lineage={})
    return directory


def test_a_load_is_due_where_it_has_something_to_load_or_to_say(tmp_path):
    assert is_load_due(offsets((0, 5)), str(tmp_path / "none"))
    assert not is_load_due(offsets((0, 0)), str(tmp_path / "none"))
    table = loaded(str(tmp_path / "t"), 5)
    assert not is_load_due(offsets((2, 5)), table)
    assert is_load_due(offsets((0, 6)), table)
    assert is_load_due(offsets((0, 3), topic_id="created again"), table)
    assert not is_load_due(offsets((0, 5), topic_id=""), table)
    assert is_load_due(offsets((0, 3)), table)
    newest = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])
    assert is_load_due(offsets((0, 5)), table)


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
