"""The figures of the sensors' ticks: over many partitions, whose broker is a round trip of 5 ms away.

The broker advertises the address of a proxy that delays (`delay`). The topics are empty and have no tables, so
that no tick requests a run; the first tick of the topics reports all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from millrace.addresses import LOOPBACK, Address, parse_address
from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.errors import PlatformError
from millrace.ports import free_port
from millrace_benchmarks import subjects
from millrace_benchmarks.dagster_effort import DagsterEffort
from millrace_benchmarks.delay import delayed
from millrace_benchmarks.harness import Figure, beside_goal
from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.declaration.cluster import DeclaredCluster, declared_cluster, named, write_topics
from millrace_pipelines.defs.load_automation import new_records_sensor, table_lag_sensor
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topic_sensor import topics_sensor

ROUND_TRIP_S = 0.005
GOAL_S = 10.0


def tick_figures(place: Path, effort: DagsterEffort) -> list[Figure]:
    """Returns the seconds of a tick of each sensor that looks at the cluster."""
    names = frozenset(f"topic-{number:03d}" for number in range(effort.tick_topics))
    partitions = effort.tick_topics * effort.tick_partitions
    with _distant_broker(place) as bootstrap:
        with Cluster(bootstrap) as cluster:
            for topic in names:
                Admin(cluster).create_topic(topic, effort.tick_partitions)
        state = place / "state"
        write_topics(state, names)
        declaration = ClusterDeclaration.model_validate({"undeclared_topics": "load"})
        declared = declared_cluster(declaration, names, place)
        millrace = MillraceResource(
            bootstrap=bootstrap, admin_url="", warehouse_dir=str(place), schema_dir="", master=""
        )
        seconds = [
            (sensor.name, _tick(sensor, declared, millrace))
            for sensor in (topics_sensor(declared, state), table_lag_sensor(declared), new_records_sensor(declared))
        ]
    return [
        beside_goal(f"tick of {sensor}, {partitions:,} partitions, 5 ms away", taken, "s", GOAL_S)
        for sensor, taken in seconds
    ]


def _tick(sensor: dg.SensorDefinition, cluster: DeclaredCluster, millrace: MillraceResource) -> float:
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, resources={cluster.name: millrace})
        started = time.perf_counter()
        ticked = sensor.evaluate_tick(context)
        seconds = time.perf_counter() - started
    said = ticked.skip_message or ""
    if not said.startswith(f"{len(cluster.tables)} topic") and sensor.name != named("table_lag", cluster.name):
        raise PlatformError(f"the tick of {sensor.name} saw something else than {len(cluster.tables)} topics: {said}")
    return seconds


@contextmanager
def _distant_broker(directory: Path) -> Iterator[str]:
    """Yields the address of a broker that all its clients reach by the proxy."""
    address = Address(LOOPBACK, free_port())
    advertised = {"advertised.listeners": f"PLAINTEXT://{address}"}
    with (
        subjects.millrace(directory, properties=advertised) as broker,
        delayed(address.port, parse_address(broker.bootstrap), ROUND_TRIP_S),
    ):
        yield str(address)
