"""A member of a group: does what the rebalance's table says, and keeps its lease (docs/consumer-groups.md).

One thread takes events in their order and acts; ZooKeeper's watches, timers and the application only post events. A
second thread asks ZooKeeper's leader six times in a session's timeout whether the session lives, and hand-outs depend
on the answer. Where ZooKeeper can't be reached, an action is tried again until it can be, or until the session is
known to be lost; the lease ends by itself meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from millrace.client.consumer import rebalance
from millrace.client.consumer.assignment import Partition, Thread
from millrace.client.consumer.config import ConsumerConfig
from millrace.client.consumer.group_view import read_assignment
from millrace.client.consumer.ownership import (
    NANOSECONDS_PER_MS,
    NANOSECONDS_PER_S,
    Kind,
    Lease,
    Observe,
    Owners,
    Ownership,
    OwnershipEvent,
)
from millrace.client.consumer.rebalance import Action, Changed, Close, Event, Phase, SessionLost
from millrace.clock import Clock
from millrace.errors import ClusterError, ConsumerIdTakenError, MillraceError, RebalanceFailedError, ZooKeeperError
from millrace.zk import paths
from millrace.zk.security import ZooKeeperSecurity
from millrace.zk.session import ZooKeeperSession

logger = logging.getLogger(__name__)

HEARTBEATS_PER_TIMEOUT = 6
RETRY_INTERVAL_S = 0.2
TAKING_ATTEMPTS = 5


class Consumption(Protocol):
    """The calls by which a group member tells the consumer that it gains or gives up partitions."""

    def begin(self, partitions: Mapping[Partition, Ownership]) -> None:
        """Begins to hand out messages of these partitions, from the committed offsets on."""

    def stop(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Stops handing out messages of these partitions, and returns the offsets to commit for them."""

    def take_elsewhere(self, partitions: Iterable[Partition]) -> None:
        """Makes the coordinator, if it keeps the offsets, refuse commits of these partitions by former owners."""

    def commit_elsewhere(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Commits the offsets to the coordinator; returns the partitions that another member has taken."""


class GroupMember:
    """One member of a group that ZooKeeper coordinates; its own thread rebalances and calls `consumption`."""

    def __init__(
        self,
        config: ConsumerConfig,
        name: str,
        registration: bytes,
        consumption: Consumption,
        *,
        observe: Observe,
        clock: Clock,
        security: ZooKeeperSecurity,
    ) -> None:
        self.name = name
        self.lease = Lease()
        self._config = config
        self._registration = registration
        self._consumption = consumption
        self._observe = observe
        self.session = ZooKeeperSession(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            on_change=self._session_changed,
            clock=clock,
            security=security,
        )
        self.owners = Owners(self.session, config.group_id)
        self._state = rebalance.Member(config.rebalance_max_retries)
        self._session_id: int | None = None
        self._wake = threading.Condition()
        self._events: deque[Event] = deque()
        self._outcome: Phase | None = None  # of the last rebalance that ended
        self._failure: MillraceError | None = None
        self._is_stopping = self._has_left = False
        self._stops_at_ns = 0
        self._wait_ends_ns: int | None = None
        self._threads = (
            threading.Thread(target=self._run, name="rebalance", daemon=True),
            threading.Thread(target=self._keep_lease, name="lease", daemon=True),
        )

    def start(self) -> None:
        """Joins the group.

        Raises RebalanceFailedError, ConsumerIdTakenError, ZooKeeperError, or any other error that is not retriable.
        """
        self.session.start()
        for thread in self._threads:
            thread.start()
        self._post(SessionLost())  # there was none: the same steps lead to the first one
        with self._wake:
            self._wake.wait_for(lambda: self._outcome is not None or self._is_stopping)
            failure = self._failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Commits offsets, releases the partitions and leaves the group; gives up after the session's timeout."""
        self._stops_at_ns = self.lease.clock_ns() + self.session.timeout_ms * NANOSECONDS_PER_MS
        self._post(Close())
        rebalancing, leasing = self._threads
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()
        if rebalancing.is_alive():
            rebalancing.join()
        with self._wake:
            self._has_left = True
            self._wake.notify_all()
        if leasing.is_alive():
            leasing.join()
        self.session.close()

    def commit(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Commits offsets of owned partitions; returns the partitions not committed, as this member lost them.

        Raises ZooKeeperError where the lease (how long ZooKeeper has confirmed the session for) is over.
        """
        owned, began_ns = self.owners.owned(), self.lease.clock_ns()
        self._check_lease(owned.values())
        in_zookeeper = self._config.commits_to_zookeeper
        lost = self.owners.commit(offsets) if in_zookeeper else self.owners.check(offsets)
        kept = {one: offset for one, offset in offsets.items() if one not in lost}
        if kept and self._config.commits_to_coordinator:
            lost |= self._commit_elsewhere(kept, owned.values())
            kept = {one: offset for one, offset in kept.items() if one not in lost}
        self._tell(Kind.COMMIT, {one: owned[one] for one in kept if one in owned}, began_ns, kept)
        if lost:
            logger.warning("not owned any more: %s", ", ".join(map(str, sorted(lost))))
            self._post(SessionLost())
        return lost

    def _commit_elsewhere(self, offsets: Mapping[Partition, int], owned: Iterable[Ownership]) -> set[Partition]:
        """Commits offsets to the coordinator; returns the partitions that, by ZooKeeper, this member no longer owns.

        For a partition still owned that the coordinator refuses, it takes a new commit fence and commits again.
        """
        left, lost = offsets, set[Partition]()
        for _ in range(TAKING_ATTEMPTS):
            self._check_lease(owned)
            refused = self._consumption.commit_elsewhere(left)
            lost |= self.owners.check(refused)
            refused -= lost
            if not refused:
                return lost
            self._consumption.take_elsewhere(refused)
            lost |= self.owners.check(refused)
            left = {one: left[one] for one in refused if one not in lost}
        raise ClusterError(f"{self.name}: others take {', '.join(map(str, sorted(left)))} without owning them")

    def _check_lease(self, owned: Iterable[Ownership]) -> None:
        if any(self.lease.holding_ns(one.session_id) is None for one in owned):
            raise ZooKeeperError(f"{self.name}: ZooKeeper has not confirmed the session in time; nothing is committed")

    def _session_changed(self, changed: frozenset[str] | None) -> None:
        identity = self.session.client_id
        is_same = identity is not None and identity[0] == self._session_id
        self._post(Changed() if changed is not None or is_same else SessionLost())

    def _post(self, event: Event) -> None:
        with self._wake:
            if not self._events or self._events[-1] != event:
                self._events.append(event)
            self._wake.notify_all()

    def _next_event(self) -> Event:
        with self._wake:
            while not self._events:
                if self._wait_ends_ns is None:
                    self._wake.wait()
                    continue
                remaining_s = (self._wait_ends_ns - self.lease.clock_ns()) / NANOSECONDS_PER_S
                if remaining_s <= 0:
                    return rebalance.Elapsed()
                self._wake.wait(remaining_s)
            return self._events.popleft()

    def _run(self) -> None:
        while self._state.phase is not Phase.CLOSED:
            event = self._next_event()
            self._state, actions = rebalance.step(self._state, event)
            if self._state.phase is not Phase.WAITING:
                self._wait_ends_ns = None
            logger.debug("%s: %s: %s, %s", self.name, event, self._state.phase.value, actions)
            for action in actions:
                self._act(action)
            if self._state.phase is Phase.OWNING:
                self._settle(Phase.OWNING)

    def _settle(self, outcome: Phase, failure: MillraceError | None = None) -> None:
        with self._wake:
            self._outcome, self._failure = outcome, failure
            self._wake.notify_all()

    def _act(self, action: Action) -> None:
        """Carries out an action of the rebalance; repeats it after errors until it succeeds or `_is_overtaken`."""
        while True:
            try:
                self._do(action)
            except MillraceError as error:
                logger.warning("%s: %s has failed: %s", self.name, type(action).__name__, error)
                if not error.retriable and self._outcome is None:
                    self._settle(Phase.FAILED, error)
                with self._wake:
                    if self._wake.wait_for(self._is_overtaken, RETRY_INTERVAL_S):
                        return
            else:
                return

    def _is_overtaken(self) -> bool:
        """Returns whether to give up an action: the session is lost, or the time that `close` may take is over."""
        is_late = self._state.phase is not Phase.CLOSED or self.lease.clock_ns() >= self._stops_at_ns
        return (self._is_stopping and is_late) or SessionLost() in self._events

    def _do(self, action: Action) -> None:
        match action:
            case rebalance.Register():
                self._register()
            case rebalance.ReadGroup():
                self._read_group()
            case rebalance.Release(partitions):
                self._release(partitions)
                self._post(rebalance.Released())
            case rebalance.Claim(partitions):
                self._claim(partitions)
            case rebalance.Consume(partitions):
                owned = self.owners.owned()
                self._consumption.begin({one: owned[one] for one in partitions if one in owned})
            case rebalance.Forget(partitions):
                self._forget(partitions)
            case rebalance.Wait(partition):
                self._wait_for(partition)
            case rebalance.Fail(partition):
                self._watch_owner(partition)
                retries = self._config.rebalance_max_retries
                message = f"{self.name}: after {retries} attempts {partition} is still owned by another"
                logger.error("%s; nothing is consumed until something changes", message)
                self._settle(Phase.FAILED, RebalanceFailedError(message))

    def _register(self) -> None:
        group_id = self._config.group_id
        for parent in (paths.consumer_ids(group_id), paths.owners(group_id), paths.consumer_offsets(group_id)):
            self.session.ensure(parent)
        path = paths.consumer_id(group_id, self.name)
        holder = self.session.register(path, self._registration, wait_ms=2 * self.session.timeout_ms)
        if holder is not None:  # not the node of a killed process, which would be gone by now
            taken = ConsumerIdTakenError(f"{path} is held by another live member: {holder!r}")
            if self._outcome is not None:
                raise taken
            self._settle(Phase.FAILED, taken)
            return
        if not self._renew_lease():
            raise ZooKeeperError("the session changes")
        self._post(rebalance.Registered())

    def _read_group(self) -> None:
        assignment = read_assignment(self.session, self._config)
        self._post(rebalance.Planned({one: thread for one, thread in assignment.items() if thread.member == self.name}))

    def _claim(self, partitions: Mapping[Partition, Thread]) -> None:
        began_ns = self.lease.clock_ns()
        refused = self.owners.claim(partitions)
        owned = self.owners.owned()
        taken = {one: ownership for one, ownership in owned.items() if one in partitions}
        self._tell(Kind.CLAIM, taken, began_ns)
        if not owned.keys() >= self._state.held.keys():  # someone has deleted an owner node of ours
            self._post(SessionLost())
        missing = refused or min(set(partitions) - set(taken), default=None)
        self._post(rebalance.Claimed() if missing is None else rebalance.Refused(missing, tuple(taken)))

    def _release(self, partitions: Iterable[Partition]) -> None:
        partitions = list(partitions)
        owned, began_ns = self.owners.owned(), self.lease.clock_ns()
        offsets = {one: offset for one, offset in self._consumption.stop(partitions).items() if one in owned}
        if offsets:
            lost = self.commit(offsets)
            offsets = {one: offset for one, offset in offsets.items() if one not in lost}
        self.owners.release(partitions)
        self._tell(Kind.RELEASE, {one: owned[one] for one in partitions if one in owned}, began_ns)

    def _forget(self, partitions: Iterable[Partition]) -> None:
        owned, began_ns = self.owners.owned(), self.lease.clock_ns()
        self._consumption.stop({*owned, *partitions})
        self._tell(Kind.RELEASE, owned, began_ns)
        self._session_id = None
        self.owners.release(owned)  # those that ZooKeeper still has, where it was not the session that was lost
        self.owners.forget()

    def _wait_for(self, partition: Partition) -> None:
        self._wait_ends_ns = self.lease.clock_ns() + self._config.rebalance_backoff_ms * NANOSECONDS_PER_MS
        self._watch_owner(partition)

    def _watch_owner(self, partition: Partition) -> None:
        if self.owners.is_free(partition):
            self._post(Changed())

    def _renew_lease(self) -> bool:
        asked_ns = self.lease.clock_ns()
        session_id = self.session.confirm()
        if session_id is not None:
            self.lease.renew(session_id, asked_ns, self.session.timeout_ms)
            if self._session_id is None and threading.current_thread() is self._threads[0]:
                self._session_id = session_id
        return session_id is not None

    def _keep_lease(self) -> None:
        while not self._has_left:
            try:
                self._renew_lease()
            except ZooKeeperError as error:
                logger.info("%s: the lease is not renewed: %s", self.name, error)
            with self._wake:
                interval_s = self.session.timeout_ms / 1000 / HEARTBEATS_PER_TIMEOUT
                self._wake.wait_for(lambda: self._has_left, interval_s)

    def _tell(
        self,
        kind: Kind,
        owned: Mapping[Partition, Ownership],
        began_ns: int,
        offsets: Mapping[Partition, int] | None = None,
    ) -> None:
        ended_ns = self.lease.clock_ns()
        for partition, one in owned.items():
            offset = (offsets or {}).get(partition, -1)
            self._observe(OwnershipEvent(kind, self.name, partition, one.token, began_ns, ended_ns, offset))
