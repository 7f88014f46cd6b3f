"""Which replicas outside the ISR a leader may heal from, by the nodes that the controller has written."""

from typing import Any, cast

import pytest

from millrace.errors import ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.eligibility import Eligibility, encode_eligibility
from millrace_broker.cluster.eligible_leaders import eligible_leaders
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper

KEY = TopicPartition("t", 3)
STATE, ELIGIBLE, CONFIG = paths.partition_state(*KEY), paths.eligible(*KEY), f"{paths.CONFIGS}/topics/t"


class Session:
    """Reads the model's nodes."""

    def __init__(self, zookeeper: ModelZooKeeper) -> None:
        self.zookeeper = zookeeper

    def nodes(self, wanted: list[str]) -> list[Any]:
        return [self.zookeeper.nodes.get(path) for path in wanted]


def written(*, configs: tuple[str, ...] = ("topics/t", "brokers/5")) -> ModelZooKeeper:
    """Returns nodes that name brokers 4 and 6, by the configuration of the topic and one that is not there."""
    zookeeper = ModelZooKeeper()
    for path in (paths.CONFIGS, f"{paths.CONFIGS}/topics", CONFIG, STATE):
        zookeeper.put(path, b"")
    state = codec.PartitionState(leader=5, leader_epoch=4, isr=(5,))
    zookeeper.put(STATE, codec.encode_partition_state(state))
    zxids = {one: node.modified_zxid for one in configs if (node := zookeeper.nodes.get(f"{paths.CONFIGS}/{one}"))}
    eligibility = Eligibility((4, 6), configs={one: zxids.get(one, 0) for one in configs})
    zookeeper.put(ELIGIBLE, encode_eligibility(eligibility, zookeeper.nodes[STATE].version))
    return zookeeper


def read(zookeeper: ModelZooKeeper) -> tuple[int, ...]:
    return eligible_leaders(cast("Any", Session(zookeeper)), KEY)


@pytest.mark.parametrize("configs", [(), ("topics/t",), ("brokers/5",), ("topics/t", "brokers/5")], ids=str)
def test_the_controller_names_them(configs: tuple[str, ...]) -> None:
    assert read(written(configs=configs)) == (4, 6)


@pytest.mark.parametrize("path", [STATE, CONFIG, f"{paths.CONFIGS}/brokers/5"])
def test_they_count_no_more_once_anything_that_has_decided_it_is_written_again(path: str) -> None:
    zookeeper = written()
    content = zookeeper.nodes[path].data if path in zookeeper.nodes else b"{}"
    zookeeper.put(path, content)
    assert read(zookeeper) == ()


@pytest.mark.parametrize("gone", [STATE, ELIGIBLE, CONFIG])
def test_what_is_gone_names_nobody(gone: str) -> None:
    zookeeper = written()
    zookeeper.delete(gone)
    assert read(zookeeper) == ()


@pytest.mark.parametrize("data", [b"", b"{}", b"[4]", b'{"version":2}'])
def test_what_can_not_be_read_is_an_error(data: bytes) -> None:
    zookeeper = written()
    zookeeper.put(ELIGIBLE, data)
    with pytest.raises(ZooKeeperError, match="eligible"):
        read(zookeeper)
