"""Which replicas outside the ISR have all that is committed, as the controller keeps it beside a partition's state.

A leader that has lost committed batches, alone in the ISR, takes them from these (`replication.healer`). What Apache
Kafka's controller or a former release has written names none (docs/formats/metadata.md).
"""

from __future__ import annotations

from millrace.zk import paths
from millrace.zk.codec import Partition
from millrace.zk.eligibility import decode_eligibility
from millrace.zk.session import ZooKeeperSession


def eligible_leaders(session: ZooKeeperSession, partition: Partition) -> tuple[int, ...]:
    """Returns the replicas outside a partition's ISR that have every committed record; raises ZooKeeperError.

    None counts any more once a configuration that has decided it was written again: the leader may have committed
    without them since then.
    """
    state, node = session.nodes([paths.partition_state(*partition), paths.eligible(*partition)])
    if state is None or node is None:
        return ()
    found = decode_eligibility(node.data, state.version)
    configs = session.nodes([f"{paths.CONFIGS}/{one}" for one in found.configs])
    now = [0 if one is None else one.modified_zxid for one in configs]
    return found.eligible if now == list(found.configs.values()) else ()
