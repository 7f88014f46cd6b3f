"""Gives the nodes of a cluster to the brokers' identity at ZooKeeper, or opens them.

The chroot, and all that is below ROOTS, gets the access that a broker with `zookeeper.set.acl` gives to new nodes, as
Kafka's zookeeper-security-migration does it. Nodes that have it are left as they are, and nodes that are deleted
meanwhile are passed over; a run that was cut short is simply run again.
`/consumers` is none of the roots, since the nodes there belong to the members of groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from millrace.zk.security import Access, access

if TYPE_CHECKING:
    from millrace.zk.session import ZooKeeperSession

CHROOT = "/"
ROOTS = (
    *("/admin", "/brokers", "/cluster", "/config", "/controller", "/controller_epoch", "/delegation_token", "/feature"),
    *("/isr_change_notification", "/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended"),
    *("/kafka-acl-extended-changes", "/latest_producer_id_block", "/log_dir_event_notification", "/migration"),
)


class Change(NamedTuple):
    """A ZooKeeper node, the access that it has, and the access that it is to have."""

    path: str
    found: Access
    wanted: Access


def find_nodes(session: ZooKeeperSession, *, is_secure: bool) -> Iterator[Change]:
    """Yields each node of a cluster in ZooKeeper with its present and its wanted access, parents before children."""
    for path in (CHROOT, *(node for root in ROOTS for node in _tree(session, root))):
        found = session.access_of(path)
        if found is not None:
            yield Change(path, found, access(path) if is_secure else Access.OPEN)


def migrate(session: ZooKeeperSession, *, is_secure: bool, dry_run: bool) -> tuple[int, Counter[Access]]:
    """Sets the access of all nodes, none in a dry run; returns the number of nodes, and how many get which access.

    Raises ZooKeeperError if this session may not change a node.
    """
    nodes, changed = 0, Counter[Access]()
    for change in find_nodes(session, is_secure=is_secure):
        nodes += 1
        if change.found is not change.wanted and (dry_run or session.set_access(change.path, change.wanted)):
            changed[change.wanted] += 1
    return nodes, changed


def _tree(session: ZooKeeperSession, path: str) -> Iterator[str]:
    yield path
    for child in sorted(session.children(path)):
        yield from _tree(session, f"{path}/{child}")
