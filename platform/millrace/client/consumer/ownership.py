"""Who owns a partition in ZooKeeper, and commits that only its owner can make (docs/consumer-groups.md).

    claim    set /consumers/[group]/owners/[topic]                    its version counts the topic's claims
             create …/owners/[topic]/[n]  (ephemeral)                 czxid: the fencing token
    commit   check …/owners/[topic]       has the version of when our tokens were last seen there
             check …/owners/[topic]/[n]   is there
             set   /consumers/[group]/offsets/[topic]/[n]
    release  check …/owners/[topic], delete …/owners/[topic]/[n]

Each is one transaction of ZooKeeper's. A node can be checked for its version, which a recreated node has again, but
not for its czxid: so every claim increments the version of the parent. A commit whose check fails reads that version,
then the czxids, and tries again with those partitions whose token is still ours. Nothing of an owner that was replaced
can pass, however late it arrives.

How long a member may believe that its owner nodes stand is the lease:

    asked ──────► leader of ZooKeeper: the session lives ──────► answered
      │◄──────────────── session timeout ─────────────────────────────────────────►│ the nodes may be gone
      │◄──────── lease: two thirds of it ───────────────►│◄── margin ─────────────►│

The time counts from before the question was asked, by a clock that runs on while the process is stopped and while
the machine sleeps. A member that wakes finds its lease ended, and hands out nothing until ZooKeeper has answered again
under the same session. The margin covers clocks of different speed, and the tick by which a follower tells its leader.

A member reports to an observer its claims, hand-outs, commits and releases, with their tokens. The times are those of
the lease's clock, which all processes of a machine share: the events of several members, put in order, are a history of
ownership (docs/histories.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from millrace.client.consumer.assignment import Partition, Thread
from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.operations import Check, Create, Delete, Operation, SetData
from millrace.zk.session import Node, ZooKeeperSession

LEASE_THIRDS = 2
NANOSECONDS_PER_MS = 1_000_000
NANOSECONDS_PER_S = 1_000_000_000
NO_SESSION_ID = 0


def lease_clock_ns() -> int:
    """Returns the lease's time in ns: CLOCK_BOOTTIME, which runs while the machine sleeps, or the monotonic clock."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """How long this member may believe that its ZooKeeper session, and so what it owns, exists; thread-safe."""

    def __init__(self, clock_ns: Callable[[], int] = lease_clock_ns) -> None:
        self.clock_ns = clock_ns
        self._deadline = (NO_SESSION_ID, 0)  # a session, and until when it certainly exists
        self._renewed = threading.Condition()

    def renew(self, session_id: int, asked_ns: int, timeout_ms: int) -> None:
        """Extends the lease from `asked_ns`, when the request was sent that ZooKeeper's leader has now answered."""
        with self._renewed:
            self._deadline = session_id, asked_ns + timeout_ms * NANOSECONDS_PER_MS * LEASE_THIRDS // 3
            self._renewed.notify_all()

    def holding_ns(self, session_id: int) -> int | None:
        """Returns the time in ns (`lease_clock_ns`) if the lease is of this session and not over; else None."""
        now_ns, (leased_id, ends_ns) = self.clock_ns(), self._deadline
        return now_ns if leased_id == session_id and now_ns < ends_ns else None

    def wait(self, timeout_s: float) -> None:
        """Waits until the lease is renewed, or `timeout_s` has passed."""
        with self._renewed:
            self._renewed.wait(timeout_s)


TRANSACTION_PARTITIONS = 200
COMMIT_ATTEMPTS = 20
FIRST_VERSION = 0

Offsets = Mapping[Partition, int]


class Kind(StrEnum):
    """The kind of thing that a member did with a partition: a claim, a release, a hand-out or a commit."""

    CLAIM = "claim"
    RELEASE = "release"
    HAND_OUT = "hand-out"
    COMMIT = "commit"


class OwnershipEvent(NamedTuple):
    """A report of what a member did with a partition; `token` is the owner node's czxid, `offset` is -1 for none."""

    kind: Kind
    member: str
    partition: Partition
    token: int
    began_ns: int
    ended_ns: int
    offset: int = -1


Observe = Callable[[OwnershipEvent], None]


def ignore(_: OwnershipEvent) -> None:
    """Does nothing: the `observe` function of a consumer that nobody observes."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Proof that this member owns a partition: the owner node's czxid, and the session whose end deletes the node."""

    thread: Thread
    token: int
    session_id: int


class Owners:
    """The partitions that one member owns, by nodes in ZooKeeper. Thread-safe; every call may raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession, group_id: str) -> None:
        self._session = session
        self._group_id = group_id
        self._lock = threading.RLock()
        self._owned: dict[Partition, Ownership] = {}
        self._claims: dict[str, int] = {}  # by topic, the version of its parent when our tokens were last seen

    def owned(self) -> dict[Partition, Ownership]:
        """Returns the partitions that this member owns, without asking ZooKeeper; some may be lost already."""
        with self._lock:
            return dict(self._owned)

    def claim(self, partitions: Mapping[Partition, Thread]) -> Partition | None:
        """Creates owner nodes; returns None, or the first partition that another owns: those before it stay claimed."""
        with self._lock:
            for topic, indexes in _by_topic(partitions).items():
                self._session.ensure(paths.owners(self._group_id, topic))
                self._session.ensure(paths.consumer_offsets(self._group_id, topic))
                for window in _windows(indexes):
                    refused = self._claim({one: partitions[one] for one in window}, topic)
                    if refused is not None:
                        return refused
            return None

    def commit(self, offsets: Offsets) -> set[Partition]:
        """Stores owned partitions' offsets in ZooKeeper; returns the lost partitions, which are forgotten."""
        return self._each_topic(offsets, offsets, release=False)

    def release(self, partitions: Iterable[Partition]) -> None:
        """Deletes the owner nodes of partitions, so that other members can claim them."""
        with self._lock:
            ours = [one for one in partitions if one in self._owned]
            self._each_topic(ours, {}, release=True)
            for one in ours:
                self._owned.pop(one, None)

    def check(self, partitions: Iterable[Partition]) -> set[Partition]:
        """Reads these partitions' owner nodes; returns the partitions that this member has lost, and forgets them."""
        return self._each_topic(partitions, {}, release=False)

    def forget(self) -> None:
        """Forgets all owned partitions, because the session's end has deleted their owner nodes."""
        with self._lock:
            self._owned.clear()
            self._claims.clear()

    def is_free(self, partition: Partition) -> bool:
        """Returns whether a partition has no owner node in ZooKeeper, and watches for changes of that node."""
        return self._session.nodes([self._owner(partition)], watch=True)[0] is None

    def _claim(self, threads: Mapping[Partition, Thread], topic: str) -> Partition | None:
        operations: list[Operation] = [SetData(paths.owners(self._group_id, topic), b"")]
        by_path = {self._owner(one): one for one in threads}
        operations += [Create(path, str(threads[one]).encode(), ephemeral=True) for path, one in by_path.items()]
        while (refused := self._session.transact(operations)) is not None:
            if refused not in by_path:
                raise ZooKeeperError(f"{refused} has been deleted")
            if not self._drop_own(refused):
                return by_path[refused]
        self._claims[topic], nodes = self._seen(topic, list(threads))
        for one, node in zip(threads, nodes, strict=True):
            if node is None or node.data != str(threads[one]).encode():
                return one
            self._owned[one] = Ownership(threads[one], node.created_zxid, node.session_id)
        self._verify(topic, [])  # the topic's version was read again, so every token of ours in it is checked again
        return None

    def _drop_own(self, path: str) -> bool:
        """Returns whether the owner node is gone; deletes one that a lost request of this session has left."""
        node = self._session.nodes([path])[0]
        identity = self._session.client_id
        if node is None:
            return True
        if identity is None or node.session_id != identity[0]:
            return False
        self._session.transact([Delete(path)])
        return True

    def _each_topic(self, partitions: Iterable[Partition], offsets: Offsets, *, release: bool) -> set[Partition]:
        with self._lock:
            wanted = list(partitions)
            lost = {one for one in wanted if one not in self._owned}
            for topic, indexes in _by_topic(one for one in wanted if one in self._owned).items():
                for window in _windows(indexes):
                    lost |= self._write(topic, window, offsets, release=release)
            return lost

    def _write(self, topic: str, partitions: list[Partition], offsets: Offsets, *, release: bool) -> set[Partition]:
        ours, lost = list(partitions), set[Partition]()
        for _ in range(COMMIT_ATTEMPTS):
            operations: list[Operation] = [Check(paths.owners(self._group_id, topic), self._claims[topic])]
            operations += self._stores({one: offsets[one] for one in ours if one in offsets})
            for one in ours:
                owner = self._owner(one)
                operations.append(Delete(owner) if release else Check(owner, FIRST_VERSION))
            if not ours or self._session.transact(operations) is None:
                return lost
            gone = self._verify(topic, ours)
            lost |= gone
            ours = [one for one in ours if one not in gone]
        raise ZooKeeperError(f"owners of {topic} in group {self._group_id} change without end")

    def _stores(self, offsets: Offsets) -> list[Operation]:
        stored = [paths.consumer_offset(self._group_id, *one) for one in offsets]
        nodes = self._session.nodes(stored)
        return [
            Create(path, str(offset).encode()) if node is None else SetData(path, str(offset).encode())
            for path, node, offset in zip(stored, nodes, offsets.values(), strict=True)
        ]

    def _verify(self, topic: str, partitions: list[Partition]) -> set[Partition]:
        """Reads a topic's owner nodes; returns the partitions that this member has lost, and forgets them."""
        others = [one for one in self._owned if one.topic == topic and one not in partitions]
        watched = [*partitions, *others]
        self._claims[topic], nodes = self._seen(topic, watched)
        lost = {
            one
            for one, node in zip(watched, nodes, strict=True)
            if node is None or one not in self._owned or node.created_zxid != self._owned[one].token
        }
        for one in lost:
            self._owned.pop(one, None)
        return lost

    def _seen(self, topic: str, partitions: list[Partition]) -> tuple[int, list[Node | None]]:
        parent = self._session.nodes([paths.owners(self._group_id, topic)])[0]
        nodes = self._session.nodes([self._owner(one) for one in partitions])
        return (-1 if parent is None else parent.version), nodes

    def _owner(self, partition: Partition) -> str:
        return paths.owner(self._group_id, *partition)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    found: dict[str, list[Partition]] = {}
    for one in sorted(partitions):
        found.setdefault(one.topic, []).append(one)
    return found


def _windows(partitions: list[Partition]) -> list[list[Partition]]:
    return [
        partitions[begin : begin + TRANSACTION_PARTITIONS]
        for begin in range(0, len(partitions), TRANSACTION_PARTITIONS)
    ]
