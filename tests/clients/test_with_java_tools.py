"""Apache Kafka's own Java client by way of its command-line tools, each run as its script in `bin/` would run it.

A JVM takes more than a second to start, so a test does as much as it can with one call of each tool.
"""

import json
import re
import signal
import subprocess

import pytest

from millrace.errors import SetupError
from millrace_support.kafka_tools import PATIENT_GROUPS, PATIENT_PRODUCER, patient_versions
from millrace_support.waiting import awaited

pytestmark = pytest.mark.peers

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
RECORDS = 300


@pytest.fixture
def tool(target, kafka_jars):
    """Run a tool against the broker; what it prints."""

    def run(main_class, *arguments, option="--bootstrap-server", stdin=""):
        return kafka_jars.run(main_class, option, target.bootstrap, *arguments, stdin=stdin.encode())

    return run


@pytest.fixture
def topic(tool, name):
    tool(TOPICS, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=86400000")
    awaited(lambda: name in tool(TOPICS, "--list").split() or None, "the broker knows of the topic")
    return name


def await_said(tool, words, *arguments):
    """Waits until a tool says something: a broker hears of changes a little after its controller has made them."""
    awaited(lambda: words in tool(*arguments) or None, words)


def await_unsaid(tool, words, *arguments):
    """Waits until a tool says something no more."""
    awaited(lambda: words not in tool(*arguments) or None, f"no {words}")


def keyed_lines(count=RECORDS):
    return [f"key-{index}:value-{index}" for index in range(count)]


@pytest.mark.needs("DescribeConfigs", "InitProducerId")
def test_java_topics(tool, topic):
    with pytest.raises(SetupError, match="TopicExistsException"):
        tool(TOPICS, "--create", "--topic", topic)
    said = tool(TOPICS, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s.*PartitionCount: 2\s.*retention.ms=86400000", said), said
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1", said), said
    assert topic in tool(TOPICS, "--list").split()
    tool(TOPICS, "--delete", "--topic", topic)
    await_unsaid(tool, topic, TOPICS, "--list")


@pytest.mark.needs("CreatePartitions")
def test_java_partitions(tool, topic):
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "5")
    await_said(tool, f"{topic}:4:0", f"{TOOLS}.GetOffsetShell", "--topic", topic)
    said = tool(f"{TOOLS}.GetOffsetShell", "--topic", topic)
    assert said.split() == [f"{topic}:{partition}:0" for partition in range(5)]


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_java_console(tool, name):
    """The producer makes the topic; a group takes all, and what comes later; offsets by every special time."""
    properties = (*PATIENT_PRODUCER, "--property", "parse.key=true", "--property", "key.separator=:")
    tool(CONSOLE_PRODUCER, "--topic", name, *properties, stdin="\n".join(keyed_lines()))
    consume = (
        CONSOLE_CONSUMER, "--topic", name, "--from-beginning", "--max-messages", str(RECORDS), "--group", name,
        "--property", "print.key=true", "--property", "key.separator=:",
    )  # fmt: skip
    assert [line for line in tool(*consume).splitlines() if ":" in line] == keyed_lines()
    tool(CONSOLE_PRODUCER, "--topic", name, *properties, "--compression-codec", "zstd", stdin="\n".join(keyed_lines()))
    assert [line for line in tool(*consume).splitlines() if ":" in line] == keyed_lines()
    for time, offset in (("latest", 2 * RECORDS), ("earliest", 0), ("0", 0)):
        assert f"{name}:0:{offset}" in tool(f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", time)


@pytest.mark.needs("InitProducerId", "ConsumerGroupHeartbeat")
def test_java_new_group_protocol(tool, name):
    tool(CONSOLE_PRODUCER, *PATIENT_PRODUCER, "--topic", name, stdin="\n".join(keyed_lines()))
    said = tool(
        CONSOLE_CONSUMER, "--topic", name, "--from-beginning", "--max-messages", str(RECORDS), "--group", name,
        "--consumer-property", "group.protocol=consumer",
    )  # fmt: skip
    assert [line for line in said.splitlines() if ":" in line] == keyed_lines()
    assert re.search(rf"{name}\s+Consumer", tool(f"{TOOLS}.GroupsCommand", "--list"))


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups", "DeleteGroups", "OffsetDelete", "InitProducerId")
def test_java_groups(tool, topic, name):
    """Offsets reset, shown, taken away; the group listed, described and deleted."""
    tool(CONSOLE_PRODUCER, *PATIENT_PRODUCER, "--topic", topic, stdin="\n".join(keyed_lines(10)))
    group = ("--group", name)
    tool(GROUPS, *PATIENT_GROUPS, *group, "--topic", f"{topic}:0,1", "--reset-offsets", "--to-earliest", "--execute")
    said = tool(GROUPS, *PATIENT_GROUPS, *group, "--describe")
    assert len(re.findall(rf"{name}\s+{topic}\s+[01]\s+0\s+\d+\s+\d+", said)) == 2, said
    assert re.search(rf"{name}\s+Empty", tool(GROUPS, *PATIENT_GROUPS, "--list", "--state")), said
    tool(GROUPS, *PATIENT_GROUPS, *group, "--delete-offsets", "--topic", f"{topic}:1")
    assert len(re.findall(rf"{name}\s+{topic}\s+\d+", tool(GROUPS, *PATIENT_GROUPS, *group, "--describe"))) == 1
    assert "successful" in tool(GROUPS, *PATIENT_GROUPS, *group, "--delete")
    assert "GroupIdNotFoundException" in tool(GROUPS, *PATIENT_GROUPS, *group, "--describe")


@pytest.mark.needs("DescribeConfigs", "IncrementalAlterConfigs")
def test_java_configs(tool, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(
        CONFIGS,
        *entity,
        "--alter",
        "--add-config",
        "cleanup.policy=[compact,delete]",
        "--delete-config",
        "retention.ms",
    )
    await_said(tool, "cleanup.policy=compact,delete", CONFIGS, *entity, "--describe")
    assert "retention.ms" not in tool(CONFIGS, *entity, "--describe")
    with pytest.raises(SetupError, match="InvalidConfigurationException"):
        tool(CONFIGS, *entity, "--alter", "--add-config", "segment.bytes=1")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    tool(CONFIGS, *broker, "--alter", "--add-config", "log.retention.ms=86400000")
    await_said(tool, "log.retention.ms=86400000", CONFIGS, *broker, "--describe")
    assert "num.partitions=1 " in tool(CONFIGS, *broker, "--describe", "--all")


@pytest.mark.needs("DeleteRecords", "InitProducerId")
def test_java_delete_records(tool, name, tmp_path):
    tool(CONSOLE_PRODUCER, *PATIENT_PRODUCER, "--topic", name, stdin="\n".join(keyed_lines(10)))
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 4}]}))
    said = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))
    assert f"partition: {name}-0\tlow_watermark: 4" in said
    assert f"{name}:0:4" in tool(f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", "earliest")


@pytest.mark.needs("DescribeLogDirs")
def test_java_log_dirs(tool, topic):
    said = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    described = json.loads(said.splitlines()[-1])
    ((directory,),) = [broker["logDirs"] for broker in described["brokers"]]
    assert directory["error"] is None
    assert sorted(one["partition"] for one in directory["partitions"]) == [f"{topic}-0", f"{topic}-1"]


def test_java_api_versions(tool, tmp_path):
    said = tool(f"{TOOLS}.BrokerApiVersionsCommand", *patient_versions(tmp_path))
    assert re.search(r"Produce\(0\): \d+ to 13", said), said


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_java_verifiable_clients(target, tool, kafka_jars, topic):
    """Every record is acknowledged, and consumed once; the consumer commits and leaves when it is told to stop."""
    said = tool(f"{TOOLS}.VerifiableProducer", "--topic", topic, "--max-messages", str(RECORDS), "--acks", "-1")
    sent = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in sent) == RECORDS
    command = kafka_jars.command(
        f"{TOOLS}.VerifiableConsumer", "--bootstrap-server", target.bootstrap, "--topic", topic, "--group-id", topic,
        "--reset-policy", "earliest",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as consumer:
        taken, names = 0, []
        while taken < RECORDS or "offsets_committed" not in names:
            event = json.loads(consumer.stdout.readline())
            names.append(event["name"])
            taken += event.get("count", 0) if event["name"] == "records_consumed" else 0
        consumer.send_signal(signal.SIGTERM)
        names += [json.loads(line)["name"] for line in consumer.stdout]
    assert taken == RECORDS
    assert names[-1] == "shutdown_complete"


@pytest.mark.needs("InitProducerId")
def test_java_producer_performance(tool, target, topic, kafka_jars):
    said = kafka_jars.run(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "100",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={target.bootstrap}", "acks=all",
    )  # fmt: skip
    assert re.search(r"^20000 records sent, .* 99.9th\.", said, re.MULTILINE), said
    offsets = tool(f"{TOOLS}.GetOffsetShell", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 20_000


@pytest.mark.needs("DescribeProducers", "InitProducerId")
def test_java_producers(tool, name):
    tool(CONSOLE_PRODUCER, *PATIENT_PRODUCER, "--topic", name, stdin="one")
    said = tool(f"{TOOLS}.TransactionsCommand", "describe-producers", "--topic", name, "--partition", "0")
    assert re.search(r"^\d+\s+0\s+-1\s+0\s", said, re.MULTILINE), said


@pytest.mark.needs("AlterClientQuotas", "DescribeClientQuotas", "DescribeUserScramCredentials")
def test_java_quotas_and_users(tool, name):
    client = ("--entity-type", "clients", "--entity-name", name)
    tool(CONFIGS, "--alter", "--add-config", "producer_byte_rate=1048576", *client)
    await_said(tool, "producer_byte_rate=1048576.0", CONFIGS, "--describe", *client)
    tool(CONFIGS, "--alter", "--delete-config", "producer_byte_rate", *client)
    await_unsaid(tool, "producer_byte_rate", CONFIGS, "--describe", *client)
    assert tool(CONFIGS, "--describe", "--entity-type", "users").split() == []


@pytest.mark.needs("ListConfigResources")
def test_java_config_resources(tool):
    assert tool(CONFIGS, "--describe", "--entity-type", "client-metrics").split() == []
    said = tool(CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "nobody")
    assert "The group 'nobody' doesn't exist and doesn't have dynamic config." in said


@pytest.mark.needs("ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments", "DescribeCluster")
def test_java_partition_tools(tool, topic, tmp_path):
    election = tool(
        f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0"
    )
    assert f"{topic}-0" in election
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    said = tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(file), "--execute")
    assert "Successfully started partition reassignment" in said
    assert "No partition reassignments found" in tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", "--list")
