"""What assets of maintenance share: bounded tables, failures in words, and schedules that keep their interval."""

import dagster as dg
import pytest

from millrace_pipelines.defs.admin_endpoint import MaintenanceRefusedError
from millrace_pipelines.defs.maintenance import OF_LOGS, failures_in_words, maintenance_schedules, partition_metadata
from millrace_pipelines.http import ServiceUnreachableError
from millrace_pipelines.project import REQUEST_INTERVAL_MS


def report(partition, sizes):
    segments = [{"base_offset": offset, "size_bytes": size, "reason": "old"} for offset, size in enumerate(sizes)]
    return {"topic": "t", "partition": partition, "deleted_bytes": sum(sizes), "by_segment": segments}


def test_the_largest_segments_and_partitions_are_shown_and_the_rest_is_counted():
    reports = [report(0, []), report(1, range(800)), report(2, range(1_000, 1_700))]
    metadata = partition_metadata(reports, "deleted_bytes")
    shown = [record.data for record in metadata["segments by size"].records]
    assert len(shown) == 1_000
    assert shown[0] == {"topic": "t", "partition": 2, "base offset": 699, "size bytes": 1_699, "reason": "old"}
    assert shown[-1]["size bytes"] == 500
    assert metadata["segments by size, left out"] == 500
    assert [record.data["partition"] for record in metadata["partitions"].records] == [2, 1, 0]
    assert [record.data["by segment"] for record in metadata["partitions"].records] == [700, 800, 0]
    assert metadata["partitions, left out"] == 0


def test_no_reports_make_empty_tables():
    assert partition_metadata([], "deleted_bytes")["segments by size"].records == []


@pytest.mark.parametrize(
    ("error", "retries"), [(MaintenanceRefusedError("no such topic"), False), (ServiceUnreachableError("down"), True)]
)
def test_a_failure_says_what_the_error_says_and_is_retried_where_that_may_help(error, retries):
    with pytest.raises(dg.Failure) as raised, failures_in_words():
        raise error
    assert (raised.value.description, raised.value.allow_retries) == (str(error), retries)


@pytest.mark.parametrize("name", ["hourly_retention_lake", "hourly_compaction_lake"])
def test_schedules_keep_the_interval_that_the_broker_is_told(name):
    [schedule] = [one for one in maintenance_schedules("lake", OF_LOGS) if one.name == name]
    minute, *others = schedule.cron_schedule.split()
    assert minute.isdecimal()
    assert others == ["*"] * 4, "once an hour"
    assert REQUEST_INTERVAL_MS == 60 * 60 * 1_000
