"""What says who may lead without loss, as JSON in nodes that Apache Kafka passes over (docs/formats/metadata.md).

    …/partitions/[n]/eligible    {"version":1,"partition_epoch":7,"eligible":[2],"doubtful":[],"empty":[1],
                                 "configs":{"topics/t":12,"brokers/<default>":0,"brokers/3":0}}
    /brokers/new_disks/[id]      {"version":1,"broker_epoch":31,"kept":{"t":[0,2]}}
    /brokers/power_losses/[id]   {"version":1,"broker_epoch":31}
    /brokers/damage/[id]         {"version":1,"partitions":{"t":[0,2]}}
    /brokers/seen_broker_epochs  {"version":1,"controller_epoch":5,"brokers":{"1":31,"3":29}}

A broker writes that it has lost something before it registers, without `broker_epoch`, and once more when it has
registered. `kept` names the partitions whose folders are still there; without it, it has lost all. Releases before
these forms write `coming` before they have registered, and `here` afterwards.

The controller writes the last one: what these brokers have lost until these registrations, an election has followed on.
What was lost before the node was created, controllers that do not keep it have taken into account.

A list of partitions that would take more than `MAX_LIST_BYTES` is left out: of what is kept, none is named then, and
all are damaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from operator import index as whole
from typing import Any, NamedTuple

from millrace.zk.codec import Partition, decoded, dump

MAX_LIST_BYTES = 500_000  # ZooKeeper takes a node of 1 MiB
COMING, HERE = b"coming", b"here"


class Eligibility(NamedTuple):
    """The replicas of a partition outside its ISR that may lead, and those that must not.

    Attributes:
        eligible: They have every committed record (KIP-966), as long as the configurations are those of `configs`.
        doubtful: They had every committed record, and may have lost the last ones with the power of their machine.
        empty: They have begun with an empty disk since a leader was there.
        configs: The configurations that have decided, by their path below `/config`, with the transaction that wrote
            each, 0 where there is none.
    """

    eligible: tuple[int, ...] = ()
    doubtful: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    configs: Mapping[str, int] = {}


NO_ONE = Eligibility()


def encode_eligibility(eligibility: Eligibility, partition_epoch: int) -> bytes:
    """Returns the data of the node beside a partition's state, which holds while the state has this partition epoch."""
    replicas = {name: list(value) for name, value in eligibility._asdict().items() if name != "configs"}
    return dump({"version": 1, "partition_epoch": partition_epoch, **replicas, "configs": dict(eligibility.configs)})


def decode_eligibility(data: bytes, partition_epoch: int) -> Eligibility:
    """Returns what the node beside a partition's state says, `NO_ONE` where the state is in another partition epoch.

    Raises ZooKeeperError for other data.
    """
    epoch, eligibility = decoded(data, "list of eligible leaders", _eligibility)
    return eligibility if epoch == partition_epoch else NO_ONE


def _eligibility(fields: Mapping[str, Any]) -> tuple[int, Eligibility]:
    eligible, doubtful, empty = (tuple(map(whole, fields[name])) for name in ("eligible", "doubtful", "empty"))
    configs = {str(path): whole(zxid) for path, zxid in fields["configs"].items()}
    return whole(fields["partition_epoch"]), Eligibility(eligible, doubtful, empty, configs)


class LossReport(NamedTuple):
    """What a broker has written of a loss: in which registration (None: in the next one), and what it has kept."""

    broker_epoch: int | None
    kept: frozenset[Partition] = frozenset()


def encode_loss(report: LossReport) -> bytes:
    """Returns the data of the node by which a broker says that it has lost records."""
    epoch = {} if report.broker_epoch is None else {"broker_epoch": report.broker_epoch}
    data = dump({"version": 1, **epoch, "kept": _by_topic(report.kept)})
    return data if len(data) <= MAX_LIST_BYTES else dump({"version": 1, **epoch, "kept": {}})


def decode_loss(data: bytes, written_zxid: int) -> LossReport:
    """Returns what a broker has written of a loss, in the transaction `written_zxid`; raises ZooKeeperError."""
    if data in {COMING, HERE}:
        return LossReport(None if data == COMING else written_zxid)
    return decoded(data, "report of a loss", _loss)


def _loss(fields: Mapping[str, Any]) -> LossReport:
    epoch = fields.get("broker_epoch")
    return LossReport(None if epoch is None else whole(epoch), frozenset(_partitions(fields["kept"])))


def encode_damage(partitions: Collection[Partition]) -> bytes:
    """Returns the data of the node by which a broker names the partitions whose logs are damaged."""
    data = dump({"version": 1, "partitions": _by_topic(partitions)})
    return data if len(data) <= MAX_LIST_BYTES else dump({"version": 1, "partitions": None})


def decode_damage(data: bytes) -> frozenset[Partition] | None:
    """Returns the partitions that are damaged, None where all may be; raises ZooKeeperError for other data."""
    return decoded(
        data,
        "list of damaged partitions",
        lambda fields: None if fields["partitions"] is None else frozenset(_partitions(fields["partitions"])),
    )


class SeenEpochs(NamedTuple):
    """Names the last controller that has kept the node, and the last broker epoch of each broker that was seen."""

    controller_epoch: int
    brokers: Mapping[int, int] = {}


def encode_seen_epochs(seen: SeenEpochs) -> bytes:
    """Returns the data of the node by which controllers say what losses they have taken into account."""
    epochs = {str(broker): epoch for broker, epoch in sorted(seen.brokers.items())}
    return dump({"version": 1, "controller_epoch": seen.controller_epoch, "brokers": epochs})


def decode_seen_epochs(data: bytes) -> SeenEpochs:
    """Returns what losses controllers have taken into account; raises ZooKeeperError for other data."""
    return decoded(
        data,
        "list of seen broker epochs",
        lambda fields: SeenEpochs(
            whole(fields["controller_epoch"]),
            {int(broker): whole(epoch) for broker, epoch in fields["brokers"].items()},
        ),
    )


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        found[topic].append(index)
    return found


def _partitions(topics: Mapping[str, Iterable[int]]) -> list[Partition]:
    return [(str(topic), whole(index)) for topic, indexes in topics.items() for index in indexes]
