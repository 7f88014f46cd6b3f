"""The demo's downstream job: what it makes of flights, batch by batch, is what the source says."""

import sys
from importlib.resources import files

import dagster as dg
import pytest

from millrace.client.consumer import Message
from millrace_ops.demo.carrier_delays import SCHEMA, Delays, added_up, by_carrier, carrier_delays, each_alone
from millrace_ops.demo.demo import DEFINITIONS
from millrace_ops.demo.flights import events, read_flights
from millrace_pipelines.definitions import load_project
from millrace_pipelines.project import make_project, write_definitions

DELAYS = dg.AssetKey("carrier_delays")


@pytest.fixture(scope="module")
def flights():
    return read_flights().slice(0, 20_000)


def test_batches_add_up_to_what_the_source_says(flights):
    messages = [Message("flights", 0, number, one.key, one.value, 0, ()) for number, one in enumerate(events(flights))]
    rows = SCHEMA.empty_table()
    for begin in range(0, len(messages), 7_000):
        rows = carrier_delays.process(rows, messages[begin : begin + 7_000])
    assert rows.schema == SCHEMA
    assert by_carrier(rows) == by_carrier(added_up(each_alone(flights)))


def test_delays_are_those_of_the_rows(flights):
    rows = [row for row in flights.to_pylist() if row["carrier"] == "UA"]
    departed = [row["dep_delay"] for row in rows if row["dep_delay"] is not None]
    arrived = [row["arr_delay"] for row in rows if row["arr_delay"] is not None]
    delays = by_carrier(added_up(each_alone(flights)))["UA"]
    cancelled = sum(row["dep_time"] is None for row in rows)
    assert cancelled > 0
    assert delays == Delays(len(rows), cancelled, len(departed), sum(departed), len(arrived), sum(arrived))
    assert delays.mean_departure_delay == pytest.approx(sum(departed) / len(departed))
    assert Delays(1, 1, 0, 0, 0, 0).mean_arrival_delay is None


def test_the_demos_definitions_have_the_delays_behind_the_topic_with_a_pool_of_their_own(tmp_path, monkeypatch):
    defs, key = demo_definitions(tmp_path, monkeypatch), DELAYS
    graph = defs.resolve_asset_graph()
    assert graph.get(key).parent_keys == {dg.AssetKey(["millrace", "topic", "flights"])}
    assert graph.get(key).group_name == "flights"
    assert defs.get_assets_def(key).op.pool == "downstream/carrier_delays"
    there = {one.to_user_string() for one in graph.get_all_asset_keys()}
    assert {"millrace/table/flights", "millrace/dead_letters/flights", "millrace/retention"} <= there


def test_the_delays_follow_the_topic(tmp_path, monkeypatch):
    defs, instance, key = demo_definitions(tmp_path, monkeypatch), dg.DagsterInstance.ephemeral(), DELAYS
    first = dg.evaluate_automation_conditions(defs, instance=instance, asset_selection=dg.AssetSelection.assets(key))
    assert first.total_requested == 0
    instance.report_runless_asset_event(dg.AssetMaterialization(["millrace", "topic", "flights"]))
    second = dg.evaluate_automation_conditions(
        defs, instance=instance, asset_selection=dg.AssetSelection.assets(key), cursor=first.cursor
    )
    assert second.total_requested == 1
    [sensor] = [one for one in defs.sensors if one.name == "default_automation_condition_sensor"]
    assert sensor.default_status.value == "RUNNING"


def demo_definitions(folder, monkeypatch):
    make_demo_project(folder)
    monkeypatch.setenv("MILLRACE_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("MILLRACE_WAREHOUSE_DIR", str(folder))
    monkeypatch.setattr("sys.path", sys.path[:])
    for name in ("defs", "defs.carrier_delays"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return load_project(str(folder))


def make_demo_project(folder):
    for name in DEFINITIONS:
        write_definitions(str(folder), name, files("millrace_ops.demo").joinpath("defs", name).read_text())
    make_project(str(folder))
