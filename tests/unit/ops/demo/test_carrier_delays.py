"""The demo's downstream job: what it makes of flights, batch by batch, is what the source says."""

import dagster as dg
import pytest
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_module

from millrace.client.consumer import Message
from millrace_ops.demo.carrier_delays import SCHEMA, Delays, added_up, by_carrier, carrier_delays, each_alone
from millrace_ops.demo.definitions import defs
from millrace_ops.demo.flights import events, read_flights
from millrace_pipelines.defs.topics.partitions import TOPICS


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


def test_the_demos_definitions_have_the_delays_behind_the_topic_with_a_pool_of_their_own():
    graph = defs.resolve_asset_graph()
    key = dg.AssetKey("carrier_delays")
    assert graph.get(key).parent_keys == {dg.AssetKey("topic")}
    assert defs.get_assets_def(key).op.pool == "downstream/carrier_delays"
    assert {"warehouse_table", "retention"} <= {one.to_user_string() for one in graph.get_all_asset_keys()}


def test_the_delays_follow_the_topic_where_the_sensor_of_conditions_runs():
    instance, key = dg.DagsterInstance.ephemeral(), dg.AssetKey("carrier_delays")
    instance.add_dynamic_partitions(TOPICS, ["flights"])
    first = dg.evaluate_automation_conditions(defs, instance=instance, asset_selection=dg.AssetSelection.assets(key))
    assert first.total_requested == 0
    instance.report_runless_asset_event(dg.AssetMaterialization("topic", partition="flights"))
    second = dg.evaluate_automation_conditions(
        defs, instance=instance, asset_selection=dg.AssetSelection.assets(key), cursor=first.cursor
    )
    assert second.total_requested == 1


def test_dagster_loads_the_demos_definitions():
    [target] = loadable_targets_from_python_module("millrace_ops.demo.definitions", None)
    assert target.attribute == "defs"
