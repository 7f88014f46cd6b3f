"""What a reload takes of a load's options, and how Spark's connector reads several ranges of one partition."""

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.records.absent import as_intervals
from millrace_pipelines.defs.load_assets import LoadConfig
from millrace_pipelines.spark.errors import FORMER_OFFSETS_STAY
from millrace_pipelines.warehouse.errors import LoadFailedError, ModeError
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import OffsetRange, Selection
from millrace_pipelines.warehouse.load.jobs import _together, one_of_each_partition
from millrace_pipelines.warehouse.load.load import check_former_offsets, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadedRange, verify_results, with_epochs
from millrace_pipelines.warehouse.load.task import TaskResult
from millrace_pipelines.warehouse.table.lineage import packed, unpacked

DOCS = Path(__file__).parents[5] / "docs"
OPTIONS = LoadOptions(topic="events", table="/nowhere/events", bootstrap="127.0.0.1:1")


@pytest.mark.parametrize("name", ["max_records_per_run", "accept_recreated_topic", "accept_truncated_log"])
@pytest.mark.parametrize("selection", [Selection(), Selection(until_table_begins=True)])
def test_an_option_that_a_reload_can_not_obey_is_refused_by_name(name, selection):
    with pytest.raises(ModeError, match=f"^{name} is not for a reload: "):
        reload_topic(replace(OPTIONS, **{name: 5}), selection)


NEW_LEDGER = {"accept_recreated_topic", "accept_truncated_log"}
FORMER = [{0: LedgerEntry(0, 10)}, {0: LedgerEntry(5, 20), 1: LedgerEntry(3, 7)}]


@pytest.mark.parametrize(
    ("span", "up_to"),
    [
        (OffsetRange(0, 20, 30), None),
        (OffsetRange(0, 19, 30), 20),
        (OffsetRange(0, 0, 1), 10),
        (OffsetRange(0, 4, 6), 20),
        (OffsetRange(1, 0, 3), None),
        (OffsetRange(1, 0, 4), 7),
        (OffsetRange(1, 7, 8), None),
        (OffsetRange(2, 0, 99), None),
    ],
)
def test_offsets_that_a_former_ledger_has_are_not_reloaded(span, up_to):
    if up_to is None:
        check_former_offsets("/t", FORMER, [span])
    else:
        with pytest.raises(ModeError, match=f"up to {up_to - 1}, .* reload from {up_to} on"):
            check_former_offsets("/t", FORMER, [OffsetRange(2, 0, 1), span])


def test_what_goes_on_in_a_new_ledger_says_before_what_can_not_be_reloaded():
    described = LoadConfig.model_json_schema()["properties"]
    for name in NEW_LEDGER:
        assert FORMER_OFFSETS_STAY in described[name]["description"]
    assert (DOCS / "warehouse.md").read_text().count(FORMER_OFFSETS_STAY) == len(described.keys() & NEW_LEDGER)


def answer(partition, from_offset, until_offset, leader_epoch=3):
    span = OffsetRange(partition, from_offset, until_offset)
    return TaskResult(range=span, records=0, absent=span.offsets, leader_epoch=leader_epoch)


def test_two_ranges_of_a_partition_are_verified_apart():
    ranges = [OffsetRange(0, 0, 10), OffsetRange(0, 10, 30), OffsetRange(1, 5, 6)]
    results = [answer(0, 20, 30), answer(0, 0, 10), answer(0, 10, 20), answer(1, 5, 6)]
    assert verify_results(ranges, results, is_compacted=True) == [
        LoadedRange(*span, 0, 0, 0, 0, span.offsets) for span in ranges
    ]
    with pytest.raises(LoadFailedError, match="partition 0: tasks end at 20, not at 30"):
        verify_results(ranges, results[1:], is_compacted=True)
    with pytest.raises(LoadFailedError, match="not planned"):
        verify_results(ranges, [*results, answer(2, 0, 1)], is_compacted=True)


def test_only_partitions_that_begin_take_the_leader_epoch_of_a_reload():
    entries = with_epochs({1: LedgerEntry(5, 6)}, [answer(0, 0, 10), answer(1, 5, 6)])
    assert {partition: entry.leader_epoch for partition, entry in entries.items()} == {1: 3}


def test_the_connector_reads_one_range_of_each_partition_at_a_time():
    first, second, other = OffsetRange(0, 0, 10), OffsetRange(0, 10, 30), OffsetRange(1, 5, 6)
    assert one_of_each_partition([first, second, other]) == [[first, other], [second]]
    assert one_of_each_partition([]) == []


@pytest.mark.parametrize("met", [[0, 1, 2], [5, 0, 9], [], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]])
def test_tasks_of_the_connector_tell_together_which_offsets_of_a_range_gave_records(met):
    answers = [
        TaskResult(range=OffsetRange(0, 0, 0), records=1, recorded=packed(as_intervals([(100 + n, 101 + n)]), 0))
        for n in met
    ]
    together = _together(OffsetRange(0, 100, 110), answers)
    assert (together.records, together.absent) == (len(met), 10 - len(met))
    assert (together.recorded == "") == (len(met) == 10)
    if together.recorded:
        found = unpacked(together.recorded, 100).tolist()
        assert [n for low, high in found for n in range(low, high)] == sorted(100 + n for n in met)
