"""How maintenance reports and findings are shown."""

import dagster as dg

from millrace_pipelines.defs.maintenance import no_findings, report_table, scrub_metadata

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


def scrubbed(directory, checked_bytes, last_ended_ms, damage=()):
    return {
        "directory": directory,
        "checked_bytes": checked_bytes,
        "total_bytes": 100,
        "round_started_ms": None,
        "last_ended_ms": last_ended_ms,
        "damage": [*damage],
    }


def test_scrubbers_are_summed_and_the_oldest_round_is_told():
    metadata = scrub_metadata([scrubbed("/a", 100, 5000), scrubbed("/b", 20, 3000, ["one", "two"])])
    assert (metadata["bytes scrubbed"], metadata["bytes to scrub"], metadata["damaged ranges"]) == (120, 200, 2)
    assert metadata["last complete scrub"].value == 3.0
    assert [row.data["damage"] for row in metadata["scrubbers"].records] == [0, 2]


def test_a_directory_without_a_complete_round_has_none():
    assert scrub_metadata([scrubbed("/a", 0, None), scrubbed("/b", 0, 3000)])["last complete scrub"] == "none yet"


def test_a_broker_of_an_older_release_tells_of_no_scrubber():
    assert scrub_metadata([]) == {}
