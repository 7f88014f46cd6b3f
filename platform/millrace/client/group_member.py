"""A member of a classic consumer group, for programs that share out work of any kind among themselves.

    application ──poll──► state (`client.membership`) ◄──answers── the member's thread ──requests──► the coordinator
        ▲                       │
        └─────on_revoked────────┘

The thread has connections of its own: the coordinator holds a JoinGroup until all members have joined, and nothing else
may wait behind it. The application's calls only look at the state, and wait for it.

A member that is stopped for longer than its session's timeout learns of its loss by the clock, before any broker tells.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from millrace.client.answers import check, is_retriable
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection, asking
from millrace.client.groups import GroupMetadata
from millrace.client.membership import (
    Alive,
    Closed,
    Event,
    Expired,
    Failed,
    Joined,
    LetGo,
    Membership,
    Named,
    Phase,
    Refused,
    Rejoin,
    Request,
    Synced,
    Taken,
    step,
)
from millrace.errors import BrokerError, ClientError, ErrorCode, MillraceError
from millrace.wire.messages import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

if TYPE_CHECKING:
    from millrace.wire.messages.join_group import JoinGroupResponse

logger = logging.getLogger(__name__)

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
HEARTBEATS_PER_SESSION = 10
LONGEST_BEAT_S = 3.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0
MOST_FAILURES = 10  # that make a pause longer


class GroupMemberClosedError(ClientError):
    """A member of a group was used after it was closed."""


class GroupMember:
    """A member of a group, from the constructor to `close`; one thread of the application uses it.

        with GroupMember(cluster, "workers", protocol_type="work", protocol="even", metadata=b"", assign=share) as one:
            while True:
                assignment = one.poll(1.0)

    Args:
        cluster: whose brokers and security it uses, over connections of its own.
        group_id: the group, of which all members have this protocol type.
        protocol_type: what the group is for; "consumer" is for those that speak that protocol.
        protocol: how `assign` assigns; all members of a group have one in common.
        metadata: what the leader gets to know of this member.
        assign: called with each member's metadata, returns the assignments; for the group's leader alone, by the
            member's thread. Who is left out gets b"".
        on_revoked: called by `poll` before the member joins again: the assignment is another's soon, or is already.
        session_timeout_ms: how long the member may be silent before the group goes on without it.
        rebalance_timeout_ms: how long it may take to let go of an assignment.
        group_instance_id: makes the member static: it has its place for the session's timeout when it is started again
            (KIP-345), and does not leave when it is closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        protocol_type: str,
        protocol: str,
        metadata: bytes,
        assign: Assign,
        on_revoked: Callable[[], object] = lambda: None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self._protocol_type, self._protocol = protocol_type, protocol
        self._metadata = metadata
        self._assign, self._on_revoked = assign, on_revoked
        self._session_ms, self._rebalance_ms = session_timeout_ms, rebalance_timeout_ms
        self._beat_s = min(session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION, LONGEST_BEAT_S)
        self._now_s = cluster.clock.monotonic_s
        timeout_s = min(cluster.timeout_s, session_timeout_ms / 1000)
        self._cluster, self._leaving = cluster.sibling(timeout_s=timeout_s), cluster.sibling(timeout_s=timeout_s)
        self._changed = threading.Condition()
        self._state = Membership()  # this, and all below, under the condition's lock
        self._error: BaseException | None = None
        self._held = GroupMetadata(group_id)
        self._alive_s = self._due_s = self._now_s()
        self._failures = 0
        self._joined: JoinGroupResponse | None = None  # the thread's alone
        self._thread = threading.Thread(target=self._run, name="millrace-group-member", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def poll(self, timeout_s: float = 0.0) -> bytes | None:
        """Returns a new assignment, perhaps the same as before; None where there is none within the timeout.

        Calls `on_revoked` first where the assignment before it is to be let go of. Raises BrokerError or another
        MillraceError where the member can't be in the group, such as FENCED_INSTANCE_ID; what `assign` raises, too.
        Raises GroupMemberClosedError after `close`.
        """
        deadline_s = self._now_s() + timeout_s
        while True:
            with self._changed:
                must_let_go = self._await_news(deadline_s)
                if not must_let_go:
                    return self._taken()
            self._on_revoked()
            self._post(LetGo())

    @property
    def is_current(self) -> bool:
        """Whether the assignment that `poll` has returned last is still this member's, as far as it knows."""
        with self._changed:
            self._look_at_the_time()
            return self._state.is_held and self._state.phase is Phase.STABLE

    @property
    def is_leader(self) -> bool:
        """Whether this member is the one that assigns, in the generation that it has joined last."""
        joined = self._joined
        return joined is not None and joined.leader == joined.member_id

    @property
    def group_metadata(self) -> GroupMetadata:
        """The member in the generation of its last assignment, for `Producer.send_offsets_to_transaction` (KIP-447).

        It stays so when the assignment is lost: the group then refuses the offsets. Raises ClientError before any.
        """
        with self._changed:
            if not self._held.member_id:
                raise ClientError(f"group {self.group_id}: the member has no assignment yet; poll returns it")
            return self._held

    def rejoin(self, metadata: bytes | None = None) -> None:
        """Has the group assign again, for a leader that assigns by what has changed, or a member with other metadata.

        From a member that is not the leader, and whose metadata is as it was, the coordinator lets all stay as it is.
        """
        with self._changed:
            if metadata is not None:
                self._metadata = metadata
            self._apply(Rejoin())

    def close(self) -> None:
        """Leaves the group, and ends; does nothing if it is closed. A static member stays for its session's timeout.

        Does not call `on_revoked`: let go of the assignment before. Raises nothing if no coordinator can be reached.
        """
        with self._changed:
            was_over, member_id = self._state.is_over, self._state.member_id
            self._apply(Closed())
        if not was_over and member_id and self.group_instance_id is None:
            self._leave(member_id)
        self._leaving.close()
        if self._thread is not threading.current_thread():
            self._thread.join(self._leaving.timeout_s)

    # Under the lock.

    def _await_news(self, deadline_s: float) -> bool:
        """Waits for a new assignment until the deadline; returns whether one has to be let go of first."""
        while True:
            self._look_at_the_time()
            state, now_s = self._state, self._now_s()
            if self._error is not None:
                raise self._error
            if state.is_over:
                raise GroupMemberClosedError(f"group {self.group_id}: the member is closed")
            if state.must_let_go or state.assignment is not None or now_s >= deadline_s:
                return state.must_let_go
            lost_s = self._alive_s + self._session_ms / 1000 if state.is_held else deadline_s
            self._changed.wait(min(deadline_s, lost_s) - now_s)

    def _taken(self) -> bytes | None:
        state = self._state
        if state.assignment is not None:
            self._held = GroupMetadata(self.group_id, state.generation, state.member_id, self.group_instance_id)
            self._apply(Taken())
        return state.assignment

    def _look_at_the_time(self) -> None:
        if self._now_s() >= self._alive_s + self._session_ms / 1000:
            self._apply(Expired())

    def _apply(self, event: Event) -> None:
        before, self._state = self._state, step(self._state, event)
        if self._state != before:
            logger.debug("group %s: %s: %s", self.group_id, event, self._state)
            if self._state.request is not before.request:
                self._due_s = self._now_s()
            self._changed.notify_all()

    def _post(self, event: Event) -> None:
        with self._changed:
            self._apply(event)

    # The member's thread.

    def _run(self) -> None:
        try:
            while (request := self._next_request()) is not None:
                self._carry_out(request)
        finally:
            self._cluster.close()

    def _next_request(self) -> Request | None:
        """Returns the next request once it is due; None once the member is closed, or can't go on."""
        with self._changed:
            while not self._state.is_over:
                request, left_s = self._state.request, self._due_s - self._now_s()
                if request is not None and left_s <= 0:
                    return request
                self._changed.wait(None if request is None else left_s)
            return None

    def _carry_out(self, request: Request) -> None:
        ask = {Request.JOIN: self._join, Request.SYNC: self._sync, Request.HEARTBEAT: self._beat}[request]
        sent_s = self._now_s()
        try:
            event = ask()
        except Exception as error:  # noqa: BLE001 -- also what `assign` raises is told by `poll`
            with self._changed:
                self._take_error(request, error, sent_s)
            return
        with self._changed:
            self._apply(event)
            self._answered(sent_s)

    def _answered(self, sent_s: float) -> None:
        self._failures = 0
        self._alive_s = sent_s
        self._due_s = self._now_s() + (self._beat_s if self._state.request is Request.HEARTBEAT else 0.0)

    def _take_error(self, request: Request, error: Exception, sent_s: float) -> None:
        """Goes on after an error: by another attempt after a pause, or as the table says; it may end the member."""
        logger.debug("group %s: %s is not done: %s", self.group_id, request.name, error)
        if not is_retriable(error):
            code = error.broker_code if isinstance(error, BrokerError) else None
            self._apply(Failed() if code is None else Refused(code))
            if self._state.phase is Phase.FAILED:
                self._error = error
                self._changed.notify_all()
            if request is Request.HEARTBEAT and code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._answered(sent_s)
                return
        if self._state.request is request:
            self._due_s = self._now_s() + min(FIRST_PAUSE_S * 2**self._failures, LAST_PAUSE_S)
            self._failures = min(self._failures + 1, MOST_FAILURES)

    def _join(self) -> Event:
        with self._changed:
            member_id, metadata = self._state.member_id, self._metadata
        ask = JOIN_GROUP.ask(
            {
                "group_id": self.group_id,
                "session_timeout": self._session_ms,
                "rebalance_timeout": self._rebalance_ms,
                "member_id": member_id,
                "group_instance_id": self.group_instance_id,
                "protocol_type": self._protocol_type,
                "protocols": [{"name": self._protocol, "metadata": metadata}],
            }
        )

        def action(connection: Connection) -> JoinGroupResponse:
            answer = connection.request(*ask, wait_s=self._rebalance_ms / 1000)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                check(answer.error_code, f"group {self.group_id}")
            return answer

        answer = self._cluster.once_on_coordinator(self.group_id, action)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return Named(answer.member_id)
        self._joined = answer
        return Joined(answer.member_id, answer.generation_id)

    def _sync(self) -> Event:
        joined = self._joined
        if joined is None:
            raise ClientError(f"group {self.group_id}: the member has not joined")
        ask = SYNC_GROUP.ask(
            {
                "group_id": self.group_id,
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "group_instance_id": self.group_instance_id,
                "protocol_type": self._protocol_type,
                "protocol_name": joined.protocol_name,
                "assignments": [
                    {"member_id": member_id, "assignment": assignment}
                    for member_id, assignment in self._assignments(joined).items()
                ],
            }
        )
        answer = self._cluster.once_on_coordinator(self.group_id, asking(ask, f"group {self.group_id}"))
        return Synced(answer.assignment)

    def _assignments(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """Returns what each member gets, if this one is to assign: a leader that was started again keeps what was."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return {}
        members = {one.member_id: one.metadata for one in joined.members}
        made = self._assign(members)
        return {one: made.get(one, b"") for one in members}

    def _beat(self) -> Event:
        with self._changed:
            state = self._state
        ask = HEARTBEAT.ask(
            {
                "group_id": self.group_id,
                "generation_id": state.generation,
                "member_id": state.member_id,
                "group_instance_id": self.group_instance_id,
            }
        )
        self._cluster.once_on_coordinator(self.group_id, asking(ask, f"group {self.group_id}"))
        return Alive()

    # The thread that closes.

    def _leave(self, member_id: str) -> None:
        ask = LEAVE_GROUP.ask(
            {"group_id": self.group_id, "member_id": member_id, "members": [{"member_id": member_id}]}
        )
        try:
            self._leaving.once_on_coordinator(self.group_id, asking(ask, f"group {self.group_id}"))
        except MillraceError as error:
            logger.debug("group %s: left without a word: %s", self.group_id, error)
