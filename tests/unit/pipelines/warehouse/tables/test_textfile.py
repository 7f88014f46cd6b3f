"""Tables as a file for Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.errors import SetupError
from millrace_pipelines.warehouse.tables.find import TableFacts
from millrace_pipelines.warehouse.tables.textfile import write_textfile

WEATHER = TableFacts(
    location="/warehouse/weather", topic="weather", rows=7, dead_letters=2, files=3, bytes=500, version=4, lag=1
)
NEW = TableFacts(location="/warehouse/new", topic="news", rows=0, dead_letters=None, files=0, bytes=0, version=0)


def test_what_is_not_known_of_a_table_is_left_out(tmp_path):
    file = tmp_path / "millrace.prom"
    for tables in ([], [WEATHER, NEW]):  # the second replaces the first
        write_textfile(str(file), tables)
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
        ("rows", *new): 0, ("files", *new): 0, ("bytes", *new): 0, ("version", *new): 0,
    }  # fmt: skip


def test_a_file_that_can_not_be_written_is_named(tmp_path):
    with pytest.raises(SetupError, match=r"missing/millrace\.prom: No such file or directory"):
        write_textfile(str(tmp_path / "missing" / "millrace.prom"), [WEATHER])
