"""Claims the role of the controller in ZooKeeper, in the way of Apache Kafka.

`/controller` is ephemeral and names the controller; `/controller_epoch` counts the claims. One transaction creates the
first and raises the second, provided that nothing has set it since it was read. So no two claims have the same epoch.

Each later write of a controller is a transaction with `ControllerClaim.check`. Another claim sets `/controller_epoch`,
and from then on ZooKeeper refuses the writes of the former controller, which may not know yet that it is one.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.controller_codec import (
    Controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from millrace.zk.operations import Check, Create, Delete, Refused, SetData
from millrace.zk.session import Node, ZooKeeperSession

CLAIM_ATTEMPTS = 10
BEFORE_THE_FIRST = 0


class ControllerClaim(NamedTuple):
    """The claim by which a broker is the controller.

    Attributes:
        epoch: The controller epoch, one more than that of the controller before.
        epoch_version: The version of the node `/controller_epoch` after the claim wrote this epoch there.
    """

    epoch: int
    epoch_version: int

    def check(self) -> Check:
        """Returns the operation that lets a transaction through only while no other broker has claimed the role."""
        return Check(paths.CONTROLLER_EPOCH, self.epoch_version)


def claim_controller(session: ZooKeeperSession, broker_id: int, timestamp_ms: int) -> ControllerClaim | None:
    """Makes a broker the controller and returns the claim; None where another session holds the role.

    That may be a former session of the same broker: its node does not tell which epoch counts now, so the caller has to
    wait until the node is gone. A claim of the same session whose answer was lost is returned as it was made.

    Raises:
        ZooKeeperError: ZooKeeper does not answer, and the claim may have been made; or others change the nodes all the
            time.
    """
    registration = encode_controller(Controller(broker_id=broker_id, timestamp_ms=timestamp_ms))
    for _ in range(CLAIM_ATTEMPTS):
        before = _epoch_node(session)
        epoch = decode_controller_epoch(before.data) + 1
        answer = session.multi(
            [
                Create(paths.CONTROLLER, registration, ephemeral=True),
                SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), before.version),
            ]
        )
        if not isinstance(answer, Refused):
            return ControllerClaim(epoch, before.version + 1)
        controller, after = session.nodes([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
        if controller is not None and not session.holds(controller):
            return None
        if controller is not None and after is not None and controller.created_zxid == after.modified_zxid:
            return ControllerClaim(decode_controller_epoch(after.data), after.version)
        if controller is not None:  # ours, but the epoch was set by hand since
            session.multi([Delete(paths.CONTROLLER, controller.version)])
    raise ZooKeeperError(f"{paths.CONTROLLER_EPOCH} was changed by others {CLAIM_ATTEMPTS} times in a row")


def _epoch_node(session: ZooKeeperSession) -> Node:
    """Returns the node `/controller_epoch`, which the first claim in a cluster creates."""
    (node,) = session.nodes([paths.CONTROLLER_EPOCH])
    if node is None:
        session.create(paths.CONTROLLER_EPOCH, encode_controller_epoch(BEFORE_THE_FIRST))
        (node,) = session.nodes([paths.CONTROLLER_EPOCH])
    if node is None:
        raise ZooKeeperError(f"{paths.CONTROLLER_EPOCH} was created and is gone")
    return node
