"""Loads from a secured Apache Kafka, and where its passwords must not be: plans, processes, tables, logs."""

import subprocess
import sys
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.security.client_security import ClientSecurity
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.spark.source import MillraceDataSource
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.certificates import PASSWORD as STORE_PASSWORD
from millrace_support.command_lines import command_lines
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of
from millrace_support.secured_kafka import PASSWORD, SecuredKafka
from millrace_support.warm_jvm import PORT, SECRET, without_warm_jvm
from millrace_support.warm_python import ADDRESS

pytestmark = pytest.mark.peers
JARS = Path(".peers/spark-kafka/libs")
RECORDS = 40
LOOK_INTERVAL_S = 0.1
LOAD = (sys.executable, "-m", "millrace_ops", "warehouse", "load")
SECRETS = (PASSWORD, STORE_PASSWORD)
numbers = count()


@pytest.fixture(scope="module", params=["3.9", "4.1"])
def kafka(request, tmp_path_factory):
    zookeeper = request.getfixturevalue("zookeeper").address + "/secured-loads" if request.param == "3.9" else None
    with SecuredKafka(find_kafka(request.param), tmp_path_factory.mktemp("kafka"), zookeeper) as started:
        yield started


@pytest.fixture(scope="module")
def spark():
    with ExitStack() as stack:
        with without_warm_jvm():
            session = stack.enter_context(spark_session("tests", local_master(2)))
        yield session


WAYS = {
    "passwords by SCRAM": ("PASSWORDS", lambda kafka: kafka.passwords("SCRAM-SHA-512")),
    "passwords by PLAIN": ("PASSWORDS", lambda kafka: kafka.passwords("PLAIN")),
    "certificates": ("MUTUAL", lambda kafka: kafka.mutual()),
}


@pytest.fixture(params=WAYS)
def way(request, kafka):
    listener, properties = WAYS[request.param]
    return kafka.address(listener), str(kafka.file(properties(kafka)))


def filled_topic(kafka):
    topic = f"flights-{next(numbers)}"
    security = ClientSecurity.from_properties(kafka.passwords("PLAIN"))
    with Cluster(kafka.address("PASSWORDS"), security=security) as cluster:
        Admin(cluster).create_topic(topic, 2)
        for partition in (0, 1):
            values = [NewRecord(b'{"n": %d}' % number) for number in range(RECORDS // 2)]
            SyncProducer(cluster).send(topic, partition, values)
    return topic


def written(folder):
    return b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())


def test_a_load_is_complete_and_its_table_knows_no_secret(spark, kafka, way, tmp_path):
    bootstrap, client_config = way
    topic = filled_topic(kafka)
    options = LoadOptions(
        topic=topic, table=str(tmp_path / "table"), bootstrap=bootstrap, client_config=client_config, group="loaders"
    )
    report = load_topic(options, spark=spark)
    assert (report.rows, report.group_error) == (RECORDS, None)
    assert audit(options.table, bootstrap=bootstrap, client_config=client_config) == []
    assert not any(secret.encode() in written(tmp_path) for secret in SECRETS)


def test_spark_queries_a_secured_topic_and_its_plan_knows_no_secret(spark, kafka, way, capfd):
    bootstrap, client_config = way
    topic = filled_topic(kafka)
    spark.dataSource.register(MillraceDataSource)
    rows = spark.read.format("millrace").option("bootstrap", bootstrap).option("clientConfig", client_config)
    found = rows.option("topic", topic).load()
    assert found.count() == RECORDS
    found.explain(mode="extended")
    shown = capfd.readouterr().out
    assert "millrace" in shown
    assert not any(secret in shown for secret in SECRETS)


@pytest.mark.usefixtures("warm_loads")
def test_commands_reach_it_and_show_no_secret(kafka, way, tmp_path, warm_millrace):
    bootstrap, client_config = way
    topic = filled_topic(kafka)
    where = ["--bootstrap", bootstrap, "--client-config", client_config]

    def run(*command, stdin=None):
        done = subprocess.run(
            [*command, *where], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        assert not any(secret in done.stdout for secret in SECRETS)
        return done.stdout

    run(warm_millrace, "produce", topic, stdin='{"n": 1}\n')
    assert len(run(warm_millrace, "consume", topic).splitlines()) == RECORDS + 1
    assert topic in run(warm_millrace, "topics", "list")
    table = str(tmp_path / "table")
    run(*LOAD, topic, "--table", table)
    assert run(warm_millrace, "warehouse", "audit", table) == f"{table}: complete, each offset once\n"


@pytest.mark.parametrize("kafka", ["4.1"], indirect=True)
@pytest.mark.usefixtures("cold_loads")
def test_no_process_of_a_load_is_started_with_a_secret(kafka, way, tmp_path):
    """The load starts its own JVM and Python; their command lines are looked at while it runs."""
    bootstrap, client_config = way
    topic = filled_topic(kafka)
    command = [*LOAD, topic, "--table", str(tmp_path), "--bootstrap", bootstrap, "--client-config", client_config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as loading:
        lines = set()
        while loading.returncode is None:
            lines |= command_lines(loading.pid)
            with suppress(subprocess.TimeoutExpired):
                loading.wait(LOOK_INTERVAL_S)
        output = loading.stdout.read()
    assert loading.returncode == 0, output
    assert any("java" in line and "spark" in line for line in lines)
    assert not any(secret in text for secret in SECRETS for text in (*lines, output))
    assert audit(str(tmp_path), bootstrap=bootstrap, client_config=client_config) == []


@pytest.fixture
def cold_loads(monkeypatch):
    """Lets a load and its JVM start as its own processes, whatever the module's other tests have."""
    for name in (ADDRESS, PORT, SECRET):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.skipif(not (JARS / "no-tokens.jar").exists(), reason="`make peers` brings Spark's Kafka source")
@pytest.mark.parametrize("kafka", ["4.1"], indirect=True)
@pytest.mark.usefixtures("warm_loads")
def test_sparks_own_reader_takes_the_same_file(kafka, way, tmp_path):
    bootstrap, client_config = way
    topic, table, events = filled_topic(kafka), str(tmp_path / "table"), tmp_path / "events"
    events.mkdir()
    jars = ",".join(str(jar.absolute()) for jar in JARS.glob("*.jar"))
    command = [
        *(*LOAD, topic, "--table", table),
        *("--bootstrap", bootstrap, "--client-config", client_config, "--reader", "spark-kafka"),
        *("--master", "local[2,3]", "--conf", f"spark.jars={jars}"),
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events.as_uri()}"),
        *("--conf", "spark.eventLog.compress=false"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert audit(table) == []
    assert sum(entry.next_offset - entry.start_offset for entry in read_ledger(table).partitions.values()) == RECORDS
    logged = written(events)
    assert b"SparkListenerJobStart" in logged
    for text in (done.stdout.encode(), done.stderr.encode(), logged, written(table)):
        assert not any(secret.encode() in text for secret in SECRETS)


def test_dagster_keeps_the_name_of_the_file_only(kafka, tmp_path, warm_loads):
    topic = filled_topic(kafka)
    asset = dg.AssetKey(["millrace", "table", topic])
    millrace = MillraceResource(
        bootstrap=kafka.address("PASSWORDS"),
        client_config=str(kafka.file(kafka.passwords("SCRAM-SHA-512"))),
        admin_url="",
        warehouse_dir=str(tmp_path / "warehouse"),
        schema_dir=str(tmp_path),
        master="local[1,3]",
    )
    cluster = cluster_of(LOAD_ALL, topic, schema_dir=str(tmp_path))
    job = definitions_of(cluster, millrace).resolve_implicit_global_asset_job_def()
    checks = {key for key in job.asset_layer.asset_graph.asset_check_keys if key.asset_key == asset}
    selected = job.get_subset(asset_selection={asset}, asset_check_selection=checks)
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        result = selected.execute_in_process(instance=instance, resources={"millrace": millrace})
    assert result.success
    assert all(check.passed for check in result.get_asset_check_evaluations())
    [loaded] = result.asset_materializations_for_node("millrace_load_tables")
    assert loaded.metadata["dagster/row_count"].value == RECORDS
    kept = written(home)
    assert topic.encode() in kept
    assert not any(secret.encode() in text for secret in SECRETS for text in (kept, written(tmp_path)))
