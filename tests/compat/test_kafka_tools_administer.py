"""Apache Kafka's own command-line tools administer a Millrace broker. A JVM takes its time: few runs, much in each."""

import json
import re
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster
from millrace.errors import SetupError
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.messages import PRODUCE
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_support.kafka_tools import patient_versions
from millrace_support.raw import RawConnection
from millrace_support.waiting import awaited

PEERS = Path(__file__).parents[2] / ".peers"

COMMANDS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "broker-api-versions of 3.9": "kafka.admin.BrokerApiVersionsCommand",
}
DUMP = "kafka.tools.DumpLogSegments"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture(scope="module")
def administered(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("administered") / "data") as process:
        yield process


@pytest.fixture
def newest_kafka():
    return with_tools("4.1")


@pytest.fixture
def tool(newest_kafka, administered):
    """Runs a tool; what it prints."""
    return runner(newest_kafka, administered)


@pytest.fixture
def older_tool(administered):
    """The same of the last version that knows ZooKeeper."""
    return runner(with_tools("3.9"), administered)


@pytest.fixture
def topic(request, administered):
    """A topic of the test's own."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)
    with Cluster(administered.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1)
    return name


def with_tools(version):
    try:
        found = find_kafka(version, PEERS)
    except SetupError as error:
        pytest.skip(str(error))
    if not any(found.libs.glob("kafka-tools-[0-9]*.jar")):
        pytest.skip(f"the jars in {found.libs} are without Kafka's tools: `make peers` brings them")
    return found


def runner(kafka, broker):
    return lambda name, *arguments: kafka.run(COMMANDS[name], "--bootstrap-server", broker.bootstrap, *arguments)


def test_topics_from_creation_to_deletion(tool):
    name = "made-by-a-tool"
    made = tool("topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=5000")
    assert f"Created topic {name}" in made
    tool("topics", "--alter", "--topic", name, "--partitions", "3")
    described = tool("topics", "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=5000", described), described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 3
    tool("topics", "--delete", "--topic", name)
    assert name not in tool("topics", "--list").splitlines()


def test_configurations_of_topics_brokers_and_all_brokers(tool, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    one = ("--entity-type", "brokers", "--entity-name", "1")
    all_of_them = ("--entity-type", "brokers", "--entity-default")
    tool("configs", "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.bytes=2000000")
    described = tool("configs", "--describe", "--all", *entity)
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy" in described
    assert "segment.bytes=2000000, DEFAULT_CONFIG:log.segment.bytes=1073741824" in described
    tool("configs", "--alter", *one, "--add-config", "log.retention.ms=7000")
    tool("configs", "--alter", *all_of_them, "--add-config", "log.retention.ms=8000")
    synonyms = "DYNAMIC_BROKER_CONFIG:log.retention.ms=7000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=8000"
    assert f"synonyms={{{synonyms}" in tool("configs", "--describe", *one)
    with pytest.raises(SetupError, match=r"no\.such\.key"):
        tool("configs", "--alter", *entity, "--add-config", "no.such.key=1")


def test_records_directories_elections_and_reassignments(tool, topic, tmp_path, administered):
    partition = {"topic": topic, "partition": 0}
    files = {
        "offsets": {"partitions": [{**partition, "offset": -1}], "version": 1},
        "elected": {"partitions": [partition]},
        "plan": {
            "partitions": [{**partition, "replicas": [1], "log_dirs": [str(administered.data_dir)]}],
            "version": 1,
        },
    }
    for file, content in files.items():
        (tmp_path / file).write_text(json.dumps(content))
    assert "low_watermark: 0" in tool("delete-records", "--offset-json-file", str(tmp_path / "offsets"))
    directories = json.loads(tool("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    [directory] = directories["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(administered.data_dir)
    assert [one["partition"] for one in directory["partitions"]] == [f"{topic}-0"]
    election = ("--election-type", "preferred", "--path-to-json-file", str(tmp_path / "elected"))
    assert "Valid replica already elected" in tool("leader-election", *election)
    plan = ("--reassignment-json-file", str(tmp_path / "plan"))
    assert "Successfully started partition reassignment" in tool("reassign-partitions", *plan, "--execute")
    verified = tool("reassign-partitions", *plan, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in verified
    assert f"Reassignment of replica {topic}-0-1 completed successfully" in verified
    assert "No partition reassignments found" in tool("reassign-partitions", "--list")


def test_a_log_is_moved_to_another_directory(newest_kafka, tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    with BrokerProcess(paths[0], more_data_dirs=paths[1:]) as broker:
        run = runner(newest_kafka, broker)
        batch = encode_batch([NewRecord(b"v", b"k", 1_700_000_000_000)] * 500)
        with Cluster(broker.bootstrap) as cluster, RawConnection(broker.bootstrap) as connection:
            Admin(cluster).create_topic("moved", 1)
            data = {"name": "moved", "partition_data": [{"index": 0, "records": batch}]}
            fields = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [data]}
            assert connection.request(ApiKey.PRODUCE, 8, fields).responses[0].partition_responses[0].error_code == 0
        [home] = [path for path in paths if (path / "moved-0").exists()]
        [target] = {*paths} - {home}
        plan = tmp_path / "plan"
        moved = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
        plan.write_text(json.dumps({"partitions": [moved], "version": 1}))
        arguments = ("--reassignment-json-file", str(plan))
        throttle = ("--replica-alter-log-dirs-throttle", "50000000")
        started = run("reassign-partitions", *arguments, "--execute", *throttle)
        assert re.search(rf"Successfully started moving log directory to {target} for replica moved-0", started), (
            started
        )
        ended = "Reassignment of replica moved-0-1 completed successfully"
        awaited(lambda: ended in run("reassign-partitions", *arguments, "--verify") or None, "the log is moved")
        broker.stop()
        assert not (home / "moved-0").exists()
        log = target / "moved-0" / f"{0:020}.log"
        assert "count: 500" in newest_kafka.run(DUMP, "--deep-iteration", "--files", str(log))
        newest_kafka.run(DUMP, "--index-sanity-check", "--files", str(log.with_suffix(".index")))


def test_the_cluster_and_what_its_brokers_serve(newest_kafka, tool, administered, tmp_path):
    said = newest_kafka.run(CLUSTER_TOOL, "cluster-id", "--bootstrap-server", administered.bootstrap)
    assert re.search(r"Cluster ID: \S{22}\b", said), said
    said = newest_kafka.run(CLUSTER_TOOL, "list-endpoints", "--bootstrap-server", administered.bootstrap)
    assert "127.0.0.1" in said
    tool("features", "describe")
    assert tool("configs", "--describe", "--entity-type", "clients", "--entity-name", "nobody").strip() == ""
    versions = tool("broker-api-versions", *patient_versions(tmp_path))
    assert "(id: 1 rack: null" in versions
    assert "DescribeConfigs(32): 0 to 4 [usable: 4]" in versions
    assert "IncrementalAlterConfigs(44): 0 to 1 [usable: 1]" in versions


def test_the_producers_of_a_partition(tool, topic, administered):
    batch = encode_batch([NewRecord(b"v", b"k", 1_700_000_000_000)] * 2, producer=BatchProducer(77, 2, 0))
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    request = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [data]}
    with Cluster(administered.bootstrap) as cluster:
        cluster.leader_connection(topic, 0).request(PRODUCE, request)
    said = tool("transactions", "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"^77\s+2\s+-1\s+1\s+1700000000000\s+None", said, re.MULTILINE), said


def test_the_older_tools(older_tool, topic, tmp_path):
    older_tool("topics", "--alter", "--topic", topic, "--partitions", "2")
    assert "PartitionCount: 2" in older_tool("topics", "--describe", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in older_tool("configs", "--describe", "--all", *entity)
    versions = older_tool("broker-api-versions of 3.9", *patient_versions(tmp_path))
    assert "DescribeConfigs(32): 0 to 4 [usable: 4]" in versions
