"""Every query of every dashboard gives data, of a broker, a mirror and loads that a Prometheus scrapes under load."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import confluent_kafka
import pytest

from millrace.addresses import LOOPBACK, Address
from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_ops.monitoring.grafana import DASHBOARDS
from millrace_pipelines.mirror.admin import serving_admin
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source, Way
from millrace_pipelines.warehouse.load.history import TableCommit
from millrace_pipelines.warehouse.load.metrics import LoadMetrics, TableCollector, ToldTable
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.tables.find import TableFacts
from millrace_support.broker_properties import EAGER_SCRUBBER
from millrace_support.prometheus import PATIENCE_S, find_prometheus, prometheus

pytestmark = pytest.mark.skipif(not find_prometheus(), reason="needs Prometheus: make prometheus")

VARIABLES = {"$instance": ".*", "$__rate_interval": "5s"}
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.interval.messages": "1",
    **EAGER_SCRUBBER,
}
PAUSE_S = 0.05
TABLE = TableFacts(location="/table", topic="events", rows=9, dead_letters=1, files=2, bytes=3000, version=4, lag=5)
NEWEST_LOAD = TableCommit(
    version=4, time_ms=1_700_000_000_000, kind="load", rows=9, dead_letters=1, removed=0, bytes=3000, file_names=("a",),
    seconds=0.5, load_id="l", run_id=None, lineage={},
)  # fmt: skip
QUERIES = {
    f"{dashboard.uid}: {panel.title}: {query}": query
    for dashboard in DASHBOARDS
    for section in dashboard.sections
    for panel in section.panels
    for query, _ in panel.queries
}


@pytest.fixture(scope="module")
def loads():
    """Metrics of loads as their loop tells them, and of a table."""
    metrics = LoadMetrics()
    metrics.registry.register(TableCollector([ToldTable(TABLE, NEWEST_LOAD)]))
    metrics.loaded(LoadReport(topic="events", table="/table", rows=1, version=0, seconds=0.1, lag={0: 5}))
    return metrics


@pytest.fixture(scope="module")
def server(tmp_path_factory, zookeeper, loads):
    directory = tmp_path_factory.mktemp("prometheus")
    connect = f"{zookeeper.address}/dashboards"
    stopped = Event()
    with (
        BrokerProcess(directory / "broker", zookeeper=connect, properties=PROPERTIES) as broker,
        BrokerProcess(directory / "target", properties=PROPERTIES) as target,
        ThreadPoolExecutor() as pool,
        ExitStack() as stack,
    ):
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 1)
        settings = copies(broker.bootstrap, target.bootstrap)
        mirror = stack.enter_context(MirrorService(settings))
        at_mirror = stack.enter_context(serving_admin(Address(LOOPBACK, 0), settings, mirror))
        targets = {
            "millrace-mirror": str(at_mirror),
            "millrace": broker.admin_url.removeprefix("http://"),
            "millrace-loads": f"{LOOPBACK}:{loads.serve(LOOPBACK, 0)}",
        }
        under_load = [pool.submit(one, broker.bootstrap, stopped) for one in (produce, consume)]
        mirroring = pool.submit(mirror.run)
        with prometheus(directory, targets) as running:
            try:
                yield running
            finally:
                stopped.set()
                mirror.stop()
        for one in (mirroring, *under_load):
            one.result()


def copies(source, target):
    """The settings of a mirror that copies, so that there are transactions."""
    east = Source(name="east", bootstrap=source, topics=("events",))
    return MirrorSettings(target=Side(bootstrap=target), sources=(east,), way=Way.COPY)


def produce(bootstrap, stopped):
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions()
    while not stopped.wait(PAUSE_S):
        producer.begin_transaction()
        producer.produce("events", b"v")
        producer.commit_transaction()


def consume(bootstrap, stopped):
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["events"])
    while not stopped.is_set():
        if consumer.poll(0.1) is not None:
            consumer.commit(asynchronous=False)
    consumer.close()


def test_every_query_gives_data(server, loads):
    deadline = time.monotonic() + PATIENCE_S
    missing = QUERIES
    while missing := {panel: query for panel, query in missing.items() if not gives_data(server, query)}:
        loads.loaded(LoadReport(topic="events", table="/table", rows=1, version=1, seconds=0.1, lag={0: 5}))
        assert time.monotonic() < deadline, "\n".join(missing)
        time.sleep(PAUSE_S)


def gives_data(server, query):
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return any(not math.isnan(float(one["value"][1])) for one in server.query(query))
