"""Removes the notifications of changes that every broker has long read.

A notification tells brokers that are there now; one that comes later reads everything.
"""

from __future__ import annotations

from millrace.zk.operations import Delete
from millrace.zk.session import ZooKeeperSession

LIFE_MS = 15 * 60_000


def remove_old_notifications(session: ZooKeeperSession, folder: str) -> None:
    """Removes the notifications in a folder that are older than a quarter of an hour."""
    for name in sorted(session.children(folder)):
        notification = f"{folder}/{name}"
        age_ms = session.age_ms(notification)
        if age_ms is not None and age_ms < LIFE_MS:
            break
        session.transact([Delete(notification)])
