"""Downstream assets follow their dependencies, and only past blocking checks; asked of Dagster in one process."""

import dagster as dg
import pytest

from millrace_pipelines.defs.downstream import micro_batch_asset
from millrace_support.downstream_jobs import listed

WORDS = dg.AssetKey("words_table")
LISTED = dg.AssetKey("listed")


@dg.asset
def words_table():
    """A load."""


def check_of(name, *, passed, blocking):
    @dg.asset_check(asset=words_table, name=name, blocking=blocking)
    def check():
        return dg.AssetCheckResult(passed=passed)

    return check


class Loads:
    """A table with two checks, one of them blocking, and a job behind it. Each load and each check is a run."""

    def __init__(self, **options):
        self.instance = dg.DagsterInstance.ephemeral()
        self.definitions = dg.Definitions(
            assets=[words_table, micro_batch_asset(listed, deps=[words_table], **options)],
            asset_checks=[check_of("whole", passed=True, blocking=True), check_of("fine", passed=True, blocking=False)],
            resources={"millrace_consumer_groups": dg.ResourceDefinition.none_resource()},
        )
        self.cursor = None

    def load(self):
        assert dg.materialize([words_table], instance=self.instance).success

    def check(self, *, passed, name="whole"):
        check = check_of(name, passed=passed, blocking=False)  # as the definitions say, not as the run does
        selection = dg.AssetSelection.checks(dg.AssetCheckKey(WORDS, name))
        assert dg.materialize([words_table, check], selection=selection, instance=self.instance).success

    def requested(self):
        """What the next tick of the sensor asks for."""
        result = dg.evaluate_automation_conditions(self.definitions, instance=self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return result.total_requested

    def bring_up_to_date(self):
        self.instance.report_runless_asset_event(dg.AssetMaterialization(LISTED))


@pytest.fixture
def loads():
    loads = Loads()
    assert loads.requested() == 0
    return loads


def test_a_load_that_passed_its_blocking_check_is_followed_once(loads):
    loads.load()
    loads.check(passed=True)
    assert [loads.requested(), loads.requested()] == [1, 0]


def test_a_load_is_followed_once_its_check_has_passed_and_not_before(loads):
    loads.load()
    assert loads.requested() == 0
    loads.check(passed=False)
    assert loads.requested() == 0
    loads.check(passed=True)
    assert [loads.requested(), loads.requested()] == [1, 0]


def test_a_check_of_an_earlier_load_does_not_count(loads):
    loads.load()
    loads.check(passed=True)
    assert loads.requested() == 1
    loads.bring_up_to_date()
    loads.load()
    assert loads.requested() == 0
    loads.check(passed=True)
    assert loads.requested() == 1


def test_a_load_that_ends_while_the_job_runs_is_followed_by_another_run(loads):
    """Both are done before the next tick, which can't tell whether the job saw the load."""
    loads.load()
    loads.check(passed=True)
    assert loads.requested() == 1
    loads.load()
    loads.check(passed=True)
    loads.bring_up_to_date()
    assert [loads.requested(), loads.requested()] == [1, 0]


def test_a_failed_run_of_the_job_is_requested_no_more_until_the_next_load(loads):
    loads.load()
    loads.check(passed=True)
    assert [loads.requested(), loads.requested()] == [1, 0]
    loads.load()
    loads.check(passed=True)
    assert loads.requested() == 1


def test_a_check_that_blocks_nothing_holds_nothing_back(loads):
    loads.load()
    loads.check(passed=True)
    loads.check(name="fine", passed=False)
    assert loads.requested() == 1


def test_a_job_without_a_condition_is_left_to_persons_and_schedules():
    loads = Loads(automation_condition=None)
    loads.load()
    loads.check(passed=True)
    assert loads.requested() == 0
