"""Judges whether a broker is live and ready, as a pure function of the facts about it (docs/health.md).

    check               fails                                                     live   ready
    data directories    one of them is offline                                    yes    no
                        all of them are: a restart opens them again               no     no
    disk                a folder has no room for a batch, or appends are refused  yes    no
    zookeeper           the connection or the session is lost                     yes    no
    metadata            a part of the broker can't act upon a change of the       yes    no
                        cluster; it is tried again
    compaction          a log can't be compacted; it grows                        yes    yes
    damage              batches that were synced can't be read                    yes    yes
    loading             logs are being opened, or coordinators read theirs        yes    no
    stopping            the broker drains its connections                         yes    no

A process that is not live is to be restarted. One that is not ready is sent no clients until it is ready again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple


class Folder(NamedTuple):
    """A data directory; the sizes of its disk are None where the operating system does not tell them."""

    path: str
    offline_reason: str | None
    free_bytes: int | None
    refuses_appends: bool
    total_bytes: int | None = None


class Facts(NamedTuple):
    """The state of a broker at one moment, by which `judge` decides.

    `zookeeper_trouble` is None while the session is whole, and where there is no ZooKeeper. `largest_batch_bytes` is
    the room that an append may need; `unheeded_changes` says which parts of the broker can't act upon the newest change
    of the cluster, and why; `failed_changes` counts by part how often one could not; `loading_partitions` counts the
    partitions that coordinators have not read yet; `uncompacted` says which logs can't be compacted, and why; `damage`
    says by data directory which offsets of which files can't be read.
    """

    folders: tuple[Folder, ...]
    largest_batch_bytes: int
    zookeeper_trouble: str | None
    is_starting: bool
    loading_partitions: int
    is_stopping: bool
    unheeded_changes: tuple[str, ...] = ()
    failed_changes: Mapping[str, int] = {}
    uncompacted: tuple[str, ...] = ()
    damage: Mapping[str, tuple[str, ...]] = {}


class Check(NamedTuple):
    """A health check: sentences on what is wrong, none if it passes, and whether a failure makes the broker unready."""

    name: str
    reasons: tuple[str, ...]
    keeps_clients_away: bool = True


class Health(NamedTuple):
    """The checks, and why the process is not live and not ready; without reasons it is."""

    checks: tuple[Check, ...]
    not_live: tuple[str, ...]
    not_ready: tuple[str, ...]


def judge(facts: Facts) -> Health:
    """Returns which checks fail by these facts, and whether the broker is live and ready."""
    checks = (
        Check("data directories", tuple(_offline(folder) for folder in facts.folders if folder.offline_reason)),
        Check("disk", tuple(filter(None, (_without_room(each, facts.largest_batch_bytes) for each in facts.folders)))),
        Check("zookeeper", (facts.zookeeper_trouble,) if facts.zookeeper_trouble else ()),
        Check("metadata", tuple(f"a change of the cluster has no effect yet: {one}" for one in facts.unheeded_changes)),
        Check("compaction", facts.uncompacted, keeps_clients_away=False),
        Check("damage", tuple(chain.from_iterable(facts.damage.values())), keeps_clients_away=False),
        Check("loading", _loading(facts)),
        Check("stopping", ("the broker is stopping",) if facts.is_stopping else ()),
    )
    is_of_use = not facts.folders or any(folder.offline_reason is None for folder in facts.folders)
    return Health(
        checks,
        not_live=() if is_of_use else ("every data directory is offline; a restart opens them again",),
        not_ready=tuple(reason for check in checks if check.keeps_clients_away for reason in check.reasons),
    )


def _offline(folder: Folder) -> str:
    return f"data directory {folder.path} is offline: {folder.offline_reason}"


def _without_room(folder: Folder, largest_batch_bytes: int) -> str | None:
    if folder.offline_reason is not None:
        return None
    if folder.free_bytes is not None and folder.free_bytes < largest_batch_bytes:
        return (
            f"the disk of {folder.path} is full: {folder.free_bytes} bytes are free, and a batch may have "
            f"{largest_batch_bytes}"
        )
    return f"the disk of {folder.path} is full: appends are refused" if folder.refuses_appends else None


def _loading(facts: Facts) -> tuple[str, ...]:
    if facts.is_starting:
        return ("the broker is starting: its logs are being opened and recovered",)
    if facts.loading_partitions:
        return (f"coordinators are still loading {facts.loading_partitions} partitions",)
    return ()
