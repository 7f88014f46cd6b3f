"""Properties of one group (KIP-848): stored, described, obeyed with the next heartbeat, and refused out of bounds."""

from uuid import uuid4

import pytest

from millrace.client import Cluster, Configs, ResourceKind
from millrace.errors import BrokerError, InvalidConfigError
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection

GROUP = "readers"
HEARTBEAT = "consumer.heartbeat.interval.ms"


def joined(bootstrap, group):
    """The heartbeat interval that a new member is told."""
    fields = {
        "group_id": group, "member_id": str(uuid4()), "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout": 10_000, "subscribed_topic_names": ["t"], "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    with RawConnection(bootstrap) as raw:
        raw.request(ApiKey.FIND_COORDINATOR, 0, {"key": group})
        answer = raw.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, fields)
    assert answer.error_code == 0, answer
    return round(answer.heartbeat_interval.total_seconds() * 1000)


def value(configs, name):
    return next((one.value, one.source) for one in configs.describe(ResourceKind.GROUP, GROUP) if one.name == name)


@pytest.mark.parametrize("coordination", ["standalone", "zookeeper"])
def test_a_groups_own_times_are_kept_and_obeyed(request, tmp_path, coordination):
    address = None if coordination == "standalone" else f"{request.getfixturevalue('zookeeper').address}/{uuid4().hex}"
    one_partition = {"offsets.topic.num.partitions": "1"}
    with BrokerProcess(tmp_path, zookeeper=address, properties=one_partition) as broker:
        with Cluster(broker.bootstrap) as cluster:
            configs = Configs(cluster)
            assert value(configs, HEARTBEAT) == ("5000", "default")
            configs.change(ResourceKind.GROUP, GROUP, {HEARTBEAT: "7000", "share.isolation.level": "read_committed"})
            assert value(configs, HEARTBEAT) == ("7000", "group")
            assert value(configs, "share.isolation.level") == ("read_committed", "group")
        assert (joined(broker.bootstrap, GROUP), joined(broker.bootstrap, "others")) == (7000, 5000)
        broker.stop()
        broker.start()
        with Cluster(broker.bootstrap) as cluster, RawConnection(broker.bootstrap) as raw:
            assert value(Configs(cluster), HEARTBEAT) == ("7000", "group")
            listed = raw.request(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [32]}).config_resources
            assert [one.resource_name for one in listed] == [GROUP]
            Configs(cluster).change(ResourceKind.GROUP, GROUP, {}, [HEARTBEAT])
            assert value(Configs(cluster), HEARTBEAT) == ("5000", "default")


@pytest.mark.parametrize(
    ("name", "properties", "error", "said"),
    [
        (
            GROUP,
            {HEARTBEAT: "20000"},
            InvalidConfigError,
            "must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (GROUP, {HEARTBEAT: "soon"}, InvalidConfigError, "Not a number of type"),
        (GROUP, {"share.isolation.level": "all"}, InvalidConfigError, "read_committed, read_uncommitted"),
        (GROUP, {"no.such.property": "1"}, InvalidConfigError, "no.such.property"),
        ("", {HEARTBEAT: "6000"}, BrokerError, "INVALID_REQUEST"),
        ("a/b", {HEARTBEAT: "6000"}, BrokerError, "INVALID_REQUEST"),
    ],
)
def test_what_a_group_may_not_have_is_refused(cluster, name, properties, error, said):
    with pytest.raises(error, match=said):
        Configs(cluster).change(ResourceKind.GROUP, name, properties)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("refused")) as broker, Cluster(broker.bootstrap) as running:
        yield running
