"""How maintenance reports and findings are shown."""

import dagster as dg

from millrace_pipelines.defs.maintenance import no_findings, report_table

KEY = dg.AssetKey("recovery_check")
CLEAN = {"topic": "events", "partition": 0, "records": 10, "findings": []}
TORN = {
    "topic": "events",
    "partition": 1,
    "records": 7,
    "findings": [{"file": "events-1/00000000000000000000.log", "position": 4096, "reason": "wrong CRC"}],
}


def test_rows():
    table = report_table([CLEAN, TORN])
    assert [column.name for column in table.schema.columns] == ["topic", "partition", "records", "findings"]
    assert [record.data["findings"] for record in table.records] == [0, 1]


def test_no_partitions_make_an_empty_table():
    assert report_table([]).records == []


def test_a_clean_log_passes():
    result = no_findings([CLEAN], KEY)
    assert result.passed
    assert result.metadata["findings"].value == "none"


def test_a_finding_fails_and_is_named_by_file_and_byte():
    result = no_findings([CLEAN, TORN], KEY)
    assert not result.passed
    assert result.metadata["findings"].value == "- `events-1/00000000000000000000.log` at byte 4096: wrong CRC"
