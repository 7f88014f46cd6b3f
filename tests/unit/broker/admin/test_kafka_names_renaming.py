"""Families of Millrace under Kafka's names."""

from prometheus_client.parser import text_string_to_metric_families

from millrace_broker.admin.collectors.families import LargeFamily, counter, counters, exposition, gauge, histograms
from millrace_broker.admin.kafka_names import KafkaNames
from millrace_broker.metrics import Durations


def renamed(*families):
    text = b"".join(exposition(KafkaNames(lambda: 0.0).renamed(families))).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_gauges_and_counters():
    found = renamed(gauge("replica_fetcher_max_lag", "", 4), counter("isr_shrinks", "", 2))
    assert found == {
        ("kafka_server_replicafetchermanager_maxlag", ("clientId", "Replica")): 4,
        ("kafka_server_replicamanager_isrshrinks_total",): 2,
    }


def test_requests_count_by_kafkas_names_of_apis_and_as_those_of_all_topics():
    found = renamed(counters("requests", "", ["api"], {("produce",): 3, ("list_offsets",): 5}))
    assert found == {
        ("kafka_network_requestmetrics_requests_total", ("request", "Produce")): 3,
        ("kafka_network_requestmetrics_requests_total", ("request", "ListOffsets")): 5,
        ("kafka_server_brokertopicmetrics_totalproducerequests_total",): 3,
    }


def test_labels_that_kafka_does_not_have_are_added_up():
    groups = {("classic", "consumer", "stable"): 2, ("consumer", "consumer", "empty"): 1}
    metric = counters("groups", "", ["type", "protocol_type", "state"], groups)
    assert renamed(metric) == {("kafka_coordinator_group_groupmetadatamanager_numgroups_total",): 3}


def test_traffic_by_topic_and_of_all_topics():
    rows = ['{topic="a"} 1', '{topic="b"} 2']
    found = renamed(LargeFamily("millrace_topic_bytes_in", "", "counter", rows, total=7))
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    assert found == {(name,): 7, (name, ("topic", "a")): 1, (name, ("topic", "b")): 2}


def test_lag_has_the_labels_of_its_exporter():
    rows = ['{group="{group=x",partition="0",topic="t"} 9']
    labels = (("consumergroup", "{group=x"), ("partition", "0"), ("topic", "t"))
    found = renamed(LargeFamily("millrace_group_lag", "", "gauge", rows))
    assert found == {("kafka_consumergroup_lag", *labels): 9}


def test_histograms_become_quantiles_in_milliseconds():
    durations = Durations()
    durations.observe(0.0004, 90)
    durations.observe(0.08, 10)
    found = renamed(histograms("request_total_seconds", "", ["api"], {("fetch",): durations}))
    name, request = "kafka_network_requestmetrics_totaltimems", ("request", "Fetch")
    assert found[f"{name}_count", request] == 100
    assert 0.25 < found[name, ("quantile", "0.50"), request] <= 0.5
    assert 50 < found[name, ("quantile", "0.99"), request] <= 100


def test_histograms_of_all_directories_are_one():
    one, other = Durations(), Durations()
    one.observe(0.003, 5)
    other.observe(0.003, 3)
    found = renamed(histograms("log_flush_seconds", "", ["directory"], {("/a",): one, ("/b",): other}))
    assert found["kafka_log_logflushstats_logflushrateandtimems_count",] == 8


def test_what_kafka_does_not_have_keeps_its_name():
    assert renamed(gauge("connections", "", 1)) == {("millrace_connections",): 1}
