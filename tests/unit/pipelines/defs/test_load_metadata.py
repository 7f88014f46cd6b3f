"""What Dagster shows of the report of a load and a reload."""

from millrace_pipelines.defs.loads.metadata import nothing_new_metadata, report_metadata
from millrace_pipelines.warehouse.ledger.plan import LostRange
from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport
from millrace_pipelines.warehouse.load.verify import LoadedRange

SPAN = LoadedRange(0, 5, 14, 7, 1, 0, 0, 1)
LOST = LostRange(0, 3, 5, "retention")


def rows(table):
    return [record.data for record in table.records]


def test_the_metadata_says_what_the_report_of_a_load_says():
    report = LoadReport(
        topic="events",
        table="/tables/events",
        rows=7,
        dead_letters=1,
        bytes=2048,
        value_bytes=4096,
        ranges=(SPAN,),
        lost=(LOST,),
        missing=(LostRange(0, 9, 11, "missing"),),
        lag={0: 2, 1: 3},
        tasks=1,
        seconds=1.23456,
        version=4,
    )
    shown = report_metadata(report)
    assert (shown["value bytes"], shown["seconds"], shown["lag"]) == (4096, 1.235, 5)
    assert rows(shown["offsets"]) == [
        {"partition": 0, "from offset": 5, "until offset": 14, "rows": 7, "dead letters": 1}
        | {"control": 0, "aborted": 0, "compacted": 1, "missing": 0}
    ]
    assert rows(shown["lost offsets"]) == [
        {"partition": 0, "from offset": 3, "until offset": 5, "reason": "retention"},
        {"partition": 0, "from offset": 9, "until offset": 11, "reason": "missing"},
    ]


def test_the_metadata_says_what_the_report_of_a_reload_says():
    report = ReloadReport(
        topic="events", table="/tables/events", replaced=(SPAN,), rows=7, removed_rows=6, seconds=1.0, version=5
    )
    shown = report_metadata(report)
    assert shown["removed rows"] == 6
    assert rows(shown["replaced"])[0]["until offset"] == 14
    assert (shown["backfilled"], shown["lost offsets"]) == ("none", "none")


def test_nothing_new_claims_no_rows():
    shown = nothing_new_metadata(LoadReport(topic="events", table="/tables/events", lag={0: 4}))
    assert (shown["loaded"], shown["lag"], "rows" in shown) == ("nothing new", 4, False)
