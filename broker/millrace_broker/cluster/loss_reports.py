"""What a broker tells the controller of its own disks, in nodes of ZooKeeper (docs/formats/metadata.md).

    write_losses     before the broker registers: it has new data directories, or its machine has lost power
    confirm_losses   once it has registered, in which registration that was
    write_damage     whenever another set of its logs is damaged; without damage there is no node

A broker that ends before it has confirmed a loss confirms it in its next registration: until a registration stands in
the node, the loss counts for each one.
"""

from __future__ import annotations

from collections.abc import Collection

from millrace.zk import paths
from millrace.zk.eligibility import LossReport, decode_loss, encode_damage, encode_loss
from millrace.zk.operations import Delete
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster.store import Losses
from millrace_broker.storage import TopicPartition


def write_losses(session: ZooKeeperSession, broker_id: int, losses: Losses) -> None:
    """Writes what a broker may have lost since its last stop; raises ZooKeeperError."""
    if losses.has_new_disk:
        session.put(paths.new_disks(broker_id), encode_loss(LossReport(None, losses.kept)))
    if losses.has_lost_power:
        session.put(paths.power_losses(broker_id), encode_loss(LossReport(None)))


def confirm_losses(session: ZooKeeperSession, broker_id: int, broker_epoch: int) -> None:
    """Writes the registration of the broker into the reports of its losses that lack one; raises ZooKeeperError."""
    for path in (paths.new_disks(broker_id), paths.power_losses(broker_id)):
        (node,) = session.nodes([path])
        if node is not None:
            report = decode_loss(node.data, node.modified_zxid)
            if report.broker_epoch is None:
                session.put(path, encode_loss(report._replace(broker_epoch=broker_epoch)))


def write_damage(session: ZooKeeperSession, broker_id: int, partitions: Collection[TopicPartition]) -> None:
    """Replaces the list of a broker's partitions whose logs are damaged; raises ZooKeeperError."""
    path = paths.damage(broker_id)
    if partitions:
        session.put(path, encode_damage(partitions))
    else:
        session.transact([Delete(path)])
