"""How a broker becomes the controller: by a claim in ZooKeeper, that only one holds.

The role is claimed in the way of Apache Kafka: `/controller` is ephemeral and names the controller; `/controller_epoch`
counts the claims. One transaction creates the first and raises the second, provided that nothing has set it since it
was read. So no two claims have the same epoch. Another claim sets `/controller_epoch`, and from then on ZooKeeper
refuses the writes of the former controller, which may not know yet that it is one.

The same transaction writes the epoch into `/brokers/seen_broker_epochs`, which tells what losses controllers have seen
(`zk/eligibility.py`). So each controller knows whether the one before has kept that node.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from millrace.errors import ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.eligibility import SeenEpochs, decode_seen_epochs, encode_seen_epochs
from millrace.zk.operations import Check, Create, Delete, Operation, Refused, SetData
from millrace.zk.session import Node, ZooKeeperSession
from millrace_broker.controller.broker_reports import readable_broker
from millrace_broker.controller.cluster_state import LiveBroker

logger = logging.getLogger(__name__)

CLAIM_ATTEMPTS = 10
BEFORE_THE_FIRST = 0


class ControllerClaim(NamedTuple):
    """The proof, in ZooKeeper, that a broker is the controller.

    Attributes:
        epoch: The controller epoch, one more than that of the controller before.
        epoch_version: The version of the node `/controller_epoch` after the claim wrote this epoch there.
    """

    epoch: int
    epoch_version: int

    def check(self) -> Check:
        """Returns an operation with which a transaction fails once another broker has become the controller."""
        return Check(paths.CONTROLLER_EPOCH, self.epoch_version)


def claim_controller(session: ZooKeeperSession, broker_id: int, timestamp_ms: int) -> ControllerClaim | None:
    """Makes a broker the controller and returns the claim; None where another session holds the role.

    That may be a former session of the same broker: its node does not tell which epoch counts now, so the caller has to
    wait until the node is gone. A claim of the same session whose response was lost is returned as it was made.

    Raises:
        ZooKeeperError: ZooKeeper does not answer, and the claim may have been made; or others change the nodes all the
            time.
    """
    registration = codec.encode_controller(broker_id, timestamp_ms)
    for _ in range(CLAIM_ATTEMPTS):
        before, seen = _nodes_before(session)
        epoch = codec.decode_controller_epoch(before.data) + 1
        answer = session.multi(
            [
                Create(paths.CONTROLLER, registration, ephemeral=True),
                SetData(paths.CONTROLLER_EPOCH, codec.encode_controller_epoch(epoch), before.version),
                *_seen_by(epoch, seen),
            ]
        )
        if not isinstance(answer, Refused):
            return ControllerClaim(epoch, before.version + 1)
        controller, after = session.nodes([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
        if controller is not None and not session.holds(controller):
            return None
        if controller is not None and after is not None and controller.created_zxid == after.modified_zxid:
            return ControllerClaim(codec.decode_controller_epoch(after.data), after.version)
        if controller is not None:  # ours, but the epoch was set by hand since
            session.multi([Delete(paths.CONTROLLER, controller.version)])
    raise ZooKeeperError(f"{paths.CONTROLLER_EPOCH} was changed by others {CLAIM_ATTEMPTS} times in a row")


def other_controller(session: ZooKeeperSession) -> tuple[LiveBroker, int] | None:
    """Returns the broker that is the controller, and the id (zxid) of the transaction that made it so.

    None if there is none, it can't be read, or its session is a former one of the broker. Raises ZooKeeperError.
    """
    (controller,) = session.nodes([paths.CONTROLLER])
    if controller is None:
        return None
    broker_id = codec.readable(codec.decode_controller, controller.data, logger, "%s can't be read", paths.CONTROLLER)
    if broker_id is None:
        return None
    (node,) = session.nodes([paths.broker(broker_id)])
    if node is None or node.session_id != controller.session_id:
        return None
    broker = readable_broker(broker_id, node)
    return None if broker is None else (broker, controller.created_zxid)


def depose_controller(session: ZooKeeperSession, broker: LiveBroker, claimed_zxid: int) -> bool:
    """Deletes the claim and the registration of a controller whose process has ended, so that another can follow.

    Returns False where the claim that was made in the transaction `claimed_zxid` is gone. Raises ZooKeeperError.
    """
    path = paths.broker(broker.id)
    epoch, controller, node = session.nodes([paths.CONTROLLER_EPOCH, paths.CONTROLLER, path])  # read in this order
    if epoch is None or controller is None or controller.created_zxid != claimed_zxid:
        return False
    is_registered = node is not None and node.created_zxid == broker.epoch
    answer = session.multi(
        [
            Check(paths.CONTROLLER_EPOCH, epoch.version),  # no other broker has claimed the role since
            Delete(paths.CONTROLLER, controller.version),
            *([Delete(path)] if is_registered else []),
        ]
    )
    return not isinstance(answer, Refused)


def _nodes_before(session: ZooKeeperSession) -> tuple[Node, Node | None]:
    """Returns the nodes `/controller_epoch`, which is created if need be, and `/brokers/seen_broker_epochs`."""
    wanted = [paths.CONTROLLER_EPOCH, paths.SEEN_BROKER_EPOCHS]
    epoch, seen = session.nodes(wanted)
    if seen is None:
        session.ensure(paths.parent(paths.SEEN_BROKER_EPOCHS))
    if epoch is None:
        session.create(paths.CONTROLLER_EPOCH, codec.encode_controller_epoch(BEFORE_THE_FIRST))
        epoch, seen = session.nodes(wanted)
    if epoch is None:
        raise ZooKeeperError(f"{paths.CONTROLLER_EPOCH} was created and is gone")
    return epoch, seen


def _seen_by(epoch: int, before: Node | None) -> list[Operation]:
    """Returns the operations by which a claim takes over what losses the controller before has seen.

    If that one was of Apache Kafka or of a former release, it has kept nothing, and all losses until the claim count as
    seen by it: the node is created again.
    """
    path = paths.SEEN_BROKER_EPOCHS
    if before is None:
        return [Create(path, encode_seen_epochs(SeenEpochs(epoch)))]
    seen = codec.readable(decode_seen_epochs, before.data, logger, "%s can't be read, and is created again", path)
    if seen is not None and seen.controller_epoch == epoch - 1:
        return [SetData(path, encode_seen_epochs(seen._replace(controller_epoch=epoch)), before.version)]
    return [Delete(path, before.version), Create(path, encode_seen_epochs(SeenEpochs(epoch)))]
