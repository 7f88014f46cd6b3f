"""What brokers and operators have written down that decides who may lead: losses, damage, and the min ISR.

A report of a loss counts from the registration that it names. Where it names none yet, it counts from the present one,
or from its own transaction if that is newer: then the registration is that of the process before, and ends soon. One
that can't be read is logged, and counts as a loss of everything in the present registration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from millrace.config import MAX_INT, whole_number
from millrace.errors import ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.eligibility import HERE, decode_damage, decode_loss
from millrace.zk.session import Node, ZooKeeperSession
from millrace_broker.controller.cluster_state import LiveBroker
from millrace_broker.controller.eligibility import Loss, MinIsr
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

MIN_ISR = "min.insync.replicas"
ALL_BROKERS = "<default>"


class BrokerReports:
    """Reads what brokers report of themselves, and configurations; for one thread. Calls may raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def new_disks(self, brokers: Iterable[LiveBroker]) -> dict[int, Loss]:
        """Returns the last loss of a disk of each broker that ever began with an empty one."""
        return self._losses(paths.new_disks, brokers)

    def power_losses(self, brokers: Iterable[LiveBroker]) -> dict[int, Loss]:
        """Returns the last loss of power of each broker that ever reported one."""
        return self._losses(paths.power_losses, brokers)

    def damage(self) -> dict[int, frozenset[TopicPartition] | None]:
        """Returns the partitions whose logs are damaged, by broker, and watches the reports; None means all."""
        brokers = [int(name) for name in self._session.children(paths.DAMAGE, watch=True) if name.isdecimal()]
        nodes = self._session.nodes([paths.damage(one) for one in brokers], watch=True)
        return {one: _damage(one, node) for one, node in zip(brokers, nodes, strict=True) if node is not None}

    def min_isrs(self, topics: Iterable[tuple[str, LiveBroker]]) -> dict[tuple[str, int], MinIsr]:
        """Returns the min ISR that each of these brokers applies to a topic, by the topic and the broker's id.

        It is left out where the broker does not tell its own default, or a configuration can't be read.
        """
        wanted = [(name, one) for name, one in dict.fromkeys(topics) if one.min_insync_replicas is not None]
        entities = {(name, one.id): _entities(name, one.id) for name, one in wanted}
        nodes = self._config_nodes({entity for layers in entities.values() for entity in layers})
        found = {}
        for name, one in wanted:
            layers = entities[name, one.id]
            try:
                value = _first_min_isr(nodes[layer] for layer in layers)
            except ZooKeeperError as error:
                logger.warning("nobody out of sync is eligible to lead %s: %s", name, error)
                continue
            own = one.min_insync_replicas or 1
            found[name, one.id] = MinIsr(value or own, {layer: _zxid(nodes[layer]) for layer in layers})
        return found

    def changed_configs(self, read: Iterable[Mapping[str, int]]) -> frozenset[str]:
        """Returns which of these configurations (`Eligibility.configs`) were written again, or deleted, since then."""
        known = {(entity, zxid) for configs in read for entity, zxid in configs.items()}
        nodes = self._config_nodes({entity for entity, _ in known})
        return frozenset(entity for entity, zxid in known if _zxid(nodes[entity]) != zxid)

    def _losses(self, path: Callable[[int], str], brokers: Iterable[LiveBroker]) -> dict[int, Loss]:
        wanted = list(brokers)
        nodes = self._session.nodes([path(one.id) for one in wanted])
        return {
            one.id: _loss(one, path(one.id), node) for one, node in zip(wanted, nodes, strict=True) if node is not None
        }

    def _config_nodes(self, entities: Iterable[str]) -> dict[str, Node | None]:
        wanted = list(entities)
        return dict(zip(wanted, self._session.nodes([f"{paths.CONFIGS}/{one}" for one in wanted]), strict=True))


def readable_broker(broker: int, node: Node) -> LiveBroker | None:
    """Returns a broker from the node of its registration; None, and logs that, where it can't be read."""
    found = codec.readable(codec.decode_broker, node.data, logger, "broker %d can't be read and is left out", broker)
    if found is None:
        return None
    return LiveBroker(
        broker, node.created_zxid, found.endpoints, found.rack, found.registers_again, found.min_insync_replicas
    )


def _entities(topic: str, broker: int) -> tuple[str, ...]:
    """Returns the configurations that decide a topic's min ISR, the one that holds first, by their paths."""
    found = (paths.topic_config(topic), paths.broker_config(str(broker)), paths.broker_config(ALL_BROKERS))
    return tuple(one.removeprefix(f"{paths.CONFIGS}/") for one in found)


def _first_min_isr(nodes: Iterable[Node | None]) -> int | None:
    for node in nodes:
        text = None if node is None or not node.data else codec.decode_config(node.data).get(MIN_ISR)
        if text is not None:
            value = whole_number(text, MAX_INT)
            if value is None:
                raise ZooKeeperError(f"{MIN_ISR}={text} is no number")
            return value
    return None


def _zxid(node: Node | None) -> int:
    return 0 if node is None else node.modified_zxid


def _loss(broker: LiveBroker, path: str, node: Node) -> Loss:
    sentence = "%s can't be read, and counts as a loss of everything"
    report = codec.readable(lambda data: decode_loss(data, node.modified_zxid), node.data, logger, sentence, path)
    if report is None:
        return Loss(broker.epoch)
    newest = max(broker.epoch, node.modified_zxid)
    epoch = newest if report.broker_epoch is None else report.broker_epoch
    return Loss(epoch, report.kept, is_registration=node.data != HERE)


def _damage(broker: int, node: Node) -> frozenset[TopicPartition] | None:
    sentence = "%s can't be read, and all logs of the broker count as damaged"
    found = codec.readable(decode_damage, node.data, logger, sentence, paths.damage(broker))
    return None if found is None else frozenset(TopicPartition(*one) for one in found)
