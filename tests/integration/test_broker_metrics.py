"""What /metrics says of topics, groups' lag, disks and the process, by its own names and by Kafka's."""

import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.groups import GroupOffset, Groups
from millrace.client.simple_consumer import SimpleConsumer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_broker.admin.kafka_names import TABLE

RECORDS, COMMITTED = 7, 3
PROPERTIES = {"offsets.topic.num.partitions": "1", "log.flush.interval.messages": "1"}
ONLY_IN_CLUSTERS = ("kafka_controller_",)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("metrics"), properties=PROPERTIES) as running:
        with Cluster(running.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2)
            SyncProducer(cluster).send("events", 1, [NewRecord(bytes(100))] * RECORDS)
            SimpleConsumer(cluster).fetch("events", 1, 0)
            Groups(cluster).commit("readers", {("events", 1): GroupOffset(COMMITTED, "")})
        yield running


def families(broker, query=""):
    with urllib.request.urlopen(f"{broker.admin_url}/metrics{query}") as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def values(broker, query=""):
    """Returns the value of each sample, by its name and the values of its labels."""
    return {
        (one.name, *(one.labels[label] for label in sorted(one.labels))): one.value
        for family in families(broker, query)
        for one in family.samples
    }


def test_traffic_by_topic(broker):
    found = values(broker)
    assert found["millrace_topic_records_in_total", "events"] == RECORDS
    assert found["millrace_topic_records_in_total", "__consumer_offsets"] >= 1
    size = found["millrace_log_size_bytes", "1", "events"]
    assert found["millrace_topic_bytes_in_total", "events"] == found["millrace_topic_bytes_out_total", "events"] == size
    assert found["millrace_topic_bytes_in_total", "(other)"] == 0


def test_lag_of_groups(broker):
    found = values(broker)
    assert found["millrace_group_offset", "readers", "1", "events"] == COMMITTED
    assert found["millrace_group_lag", "readers", "1", "events"] == RECORDS - COMMITTED
    assert found["millrace_group_offsets_left_out",] == 0


def test_disks_and_the_process(broker):
    found = values(broker)
    directory = str(broker.data_dir)
    free, total = (found[f"millrace_log_directory_{which}_bytes", directory] for which in ("free", "total"))
    assert 0 < free < total
    assert found["millrace_log_directory_online", directory] == 1
    assert found["millrace_log_flush_seconds_count", directory] >= 1
    assert found["millrace_log_recovery_seconds",] > 0
    assert found["process_open_fds",] > 0
    assert [name for name, *_ in found if name == "millrace_build_info"]
    assert "millrace_zookeeper_session_up" not in {name for name, *_ in found}


def test_names_as_in_kafka(broker):
    found = values(broker, "?names=kafka")
    traffic = "kafka_server_brokertopicmetrics_messagesin_total"
    assert found[traffic, "events"] == RECORDS
    assert found[traffic,] == found[traffic, "events"] + found[traffic, "__consumer_offsets"]
    assert found["kafka_log_log_logendoffset", "1", "events"] == RECORDS
    assert found["kafka_consumergroup_lag", "readers", "1", "events"] == RECORDS - COMMITTED
    assert found["kafka_network_requestmetrics_totaltimems", "0.99", "Produce"] > 0
    expected = {row.name for row in TABLE if not row.name.startswith(ONLY_IN_CLUSTERS)}
    assert expected <= {family.name for family in families(broker, "?names=kafka")}
    assert not {f"millrace_{row.ours}" for row in TABLE} & {family.name for family in families(broker, "?names=kafka")}


def test_other_names_are_refused(broker):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        families(broker, "?names=statsd")
