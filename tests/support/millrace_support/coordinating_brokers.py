"""What coordinates the groups and transactions of a test: one broker, or three that keep three replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

REPLICATED = PATIENT | {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
COUNTS = (1, 3)


class Brokers(NamedTuple):
    """The address of one of the brokers, of all of them, and of the one that coordinates the group `any`.

    `until_known` waits until each of them has heard of a topic: the member that leads a group asks its coordinator for
    the partitions, and where that knows none yet, librdkafka goes on with none.
    """

    first: str
    bootstrap: str
    coordinator: str
    until_known: Callable[[str], None] = lambda _: None


@contextmanager
def coordinating_brokers(count: int, folder: Path, zookeeper: str, properties: Mapping[str, str]) -> Iterator[Brokers]:
    """Starts one broker without ZooKeeper, or three with it, and yields once a group is coordinated."""
    if count == 1:
        with BrokerProcess(folder / "one", properties=properties) as broker:
            yield Brokers(broker.bootstrap, broker.bootstrap, _coordinator(broker.bootstrap))
        return
    with broker_cluster(folder, zookeeper, range(1, count + 1), {**REPLICATED, **properties}) as brokers:
        first = brokers.brokers[1].bootstrap
        coordinator = _coordinator(first)
        brokers.all_in_sync()
        yield Brokers(first, brokers.bootstrap, coordinator, brokers.until_known)


def _coordinator(bootstrap: str) -> str:
    with RawConnection(bootstrap) as raw:
        asked = {"key": "any", "key_type": 0}
        found = until(lambda: raw.request(ApiKey.FIND_COORDINATOR, 1, asked), lambda answer: not answer.error_code)
    return f"{found.host}:{found.port}"
