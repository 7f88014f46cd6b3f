"""The names that the JMX exporter would give, in the table and on the page."""

from collections import Counter
from pathlib import Path

import pytest

from millrace_broker.admin.kafka_names import TABLE

PAGE = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        ("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*",
         "kafka_server_brokertopicmetrics_messagesin"),
        ("kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
         "kafka_server_replicamanager_underreplicatedpartitions"),
        ("kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*", "kafka_network_requestmetrics_totaltimems"),
        ("kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
         "kafka_coordinator_group_groupmetadatamanager_numgroups"),
        ("kafka_consumergroup_lag{consumergroup=*,topic=*,partition=*}", "kafka_consumergroup_lag"),
    ],
)  # fmt: skip
def test_names_follow_from_mbeans(theirs, name):
    [row] = [one for one in TABLE if one.theirs == theirs]
    assert row.name == name


def test_labels_are_those_keys_that_have_every_value():
    by_name = {one.name: one for one in TABLE}
    assert by_name["kafka_network_requestmetrics_errors"].labels == {"request": "api", "error": "error"}
    lag = by_name["kafka_consumergroup_lag"]
    assert lag.labels == {"consumergroup": "group", "topic": "topic", "partition": "partition"}
    max_lag = by_name["kafka_server_replicafetchermanager_maxlag"]
    assert (max_lag.labels, max_lag.constants) == ({}, {"clientId": "Replica"})


def test_no_two_rows_have_one_name():
    assert Counter(one.name for one in TABLE).most_common(1)[0][1] == 1


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_row_is_on_the_page(row):
    assert f"| `millrace_{row.ours}` | `{row.theirs}` | `{row.name}` |" in PAGE
