"""Tables as a file for Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.errors import SetupError
from millrace_pipelines.warehouse.load.history import TableCommit
from millrace_pipelines.warehouse.load.metrics import TableCollector, ToldTable, write_textfile
from millrace_pipelines.warehouse.tables.find import TableFacts

WEATHER = TableFacts(
    location="/warehouse/weather", topic="weather", rows=7, dead_letters=2, files=3, bytes=500, version=4, lag=1
)
LOAD = TableCommit(
    version=4, time_ms=1_700_000_000_500, kind="load", rows=5, dead_letters=1, removed=0, bytes=300, file_names=("a",),
    seconds=2.5, load_id="l", run_id=None, lineage={},
)  # fmt: skip
NEW = TableFacts(location="/warehouse/new", topic="news", rows=0, dead_letters=None, files=0, bytes=0, version=0)


def test_what_is_not_known_of_a_table_is_left_out(tmp_path):
    file = tmp_path / "millrace.prom"
    for tables in ([], [ToldTable(WEATHER, LOAD), ToldTable(NEW, None)]):  # the second replaces the first
        write_textfile(str(file), TableCollector(tables))
    assert [one.name for one in tmp_path.iterdir()] == ["millrace.prom"]
    found = {
        (sample.name.removeprefix("millrace_table_"), sample.labels["table"], sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }
    weather, new = ("/warehouse/weather", "weather"), ("/warehouse/new", "news")
    assert found == {
        ("rows", *weather): 7, ("dead_letters", *weather): 2, ("files", *weather): 3, ("bytes", *weather): 500,
        ("version", *weather): 4, ("lag_records", *weather): 1,
        ("last_load_timestamp_seconds", *weather): 1_700_000_000.5, ("last_load_seconds", *weather): 2.5,
        ("last_load_rows", *weather): 5, ("last_load_dead_letters", *weather): 1,
        ("rows", *new): 0, ("files", *new): 0, ("bytes", *new): 0, ("version", *new): 0,
    }  # fmt: skip


def test_a_file_that_can_not_be_written_is_named(tmp_path):
    with pytest.raises(SetupError, match=r"missing/millrace\.prom: No such file or directory"):
        write_textfile(str(tmp_path / "missing" / "millrace.prom"), TableCollector([ToldTable(WEATHER, None)]))
