"""The demo's source: every flight once, in order, as the event that its row describes."""

import json
from collections import Counter
from importlib.resources import as_file, files

import pytest

from millrace.errors import SetupError
from millrace_ops.demo.demo import MARKER, make_fresh_directory
from millrace_ops.demo.flights import events, months, read_airlines, read_flights
from millrace_ops.demo.report import Figure, carrier_counts
from millrace_pipelines.warehouse.payload.schema import read_payload_schema


@pytest.fixture(scope="module")
def flights():
    return read_flights()


def test_every_flight_is_in_exactly_one_part(flights):
    assert flights.num_rows == 336_776
    assert months(flights, 1, 9).num_rows + months(flights, 10, 12).num_rows == 336_776
    assert set(months(flights, 10, 12)["month"].to_pylist()) == {10, 11, 12}


def test_events_carry_the_row_in_time_order(flights):
    some = list(events(flights.slice(0, 25_000)))
    assert len(some) == 25_000
    assert [event.timestamp_ms for event in some] == sorted(event.timestamp_ms for event in some)
    first = json.loads(some[0].value)
    assert first["time_hour"] == "2013-01-01T10:00:00Z"
    assert some[0].timestamp_ms == 1_357_034_400_000
    assert some[0].key.decode() == first["carrier"]


def test_missing_values_are_null(flights):
    some = [json.loads(event.value) for event in events(flights.slice(0, 5_000))]
    cancelled = [row for row in some if row["dep_time"] is None]
    assert cancelled
    assert all(row["air_time"] is None for row in cancelled)


def test_the_declared_schema_has_the_columns_of_the_source(flights):
    with as_file(files("millrace_ops.demo").joinpath("defs", "cluster", "flights.json")) as schema:
        fields = read_payload_schema(str(schema)).fields
    assert [field.name for field in fields] == flights.column_names
    nulls = {name for name in flights.column_names if flights[name].null_count}
    assert {field.name for field in fields if field.nullable} == nulls


def test_carriers(flights):
    counts = carrier_counts(flights)
    assert sum(counts.values()) == 336_776
    assert Counter(counts).most_common(1) == [("UA", 58_665)]
    assert counts.keys() == read_airlines().keys()


def test_a_fresh_directory_replaces_an_earlier_demo_and_nothing_else(tmp_path):
    directory = tmp_path / "demo"
    make_fresh_directory(str(directory))
    (directory / "broker").mkdir()
    make_fresh_directory(str(directory))
    assert [path.name for path in directory.iterdir()] == [MARKER]
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(SetupError, match="choose another with --dir"):
        make_fresh_directory(str(tmp_path))
    assert (tmp_path / "mine").read_text() == "precious"


def test_figures():
    assert Figure("rows", 5, 5).is_right
    assert not Figure("rows", 5, 4).is_right
