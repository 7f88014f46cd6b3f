"""What a load tells Dagster."""

from millrace_pipelines.warehouse.ledger.plan import LostRange
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.pipes_load import load_options, materialization_metadata
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.verify import LoadedRange


def test_extras_become_options():
    extras = {
        "topic": "events",
        "table": "/tables/events",
        "bootstrap": "127.0.0.1:9092",
        "schema": None,
        "master": None,
    }
    assert load_options(extras) == LoadOptions(topic="events", table="/tables/events", bootstrap="127.0.0.1:9092")
    assert load_options(extras | {"schema": "s.json", "master": "local[1,3]"}).schema == "s.json"


def test_the_metadata_says_what_was_done():
    report = LoadReport(
        topic="events",
        table="/tables/events",
        rows=7,
        dead_letters=1,
        bytes=2048,
        value_bytes=4096,
        ranges=(LoadedRange(0, 5, 14, 7, 1, 0, 0, 1),),
        lost=(LostRange(0, 3, 5, "retention"),),
        tasks=1,
        seconds=1.23456,
        version=4,
    )
    metadata = materialization_metadata(report)
    assert (metadata["rows"], metadata["bytes"], metadata["seconds"], metadata["table_version"]) == (7, 2048, 1.235, 4)
    assert metadata["offsets"]["raw_value"] == [
        {"partition": 0, "from_offset": 5, "until_offset": 14, "rows": 7, "dead_letters": 1}
        | {"control": 0, "aborted": 0, "compacted": 1}
    ]
    assert metadata["lost_offsets"]["raw_value"] == [
        {"partition": 0, "from_offset": 3, "until_offset": 5, "reason": "retention"}
    ]


def test_a_load_of_nothing_says_so():
    metadata = materialization_metadata(LoadReport(topic="events", table="/tables/events"))
    assert (metadata["rows"], metadata["table_version"]) == (0, "nothing new")
