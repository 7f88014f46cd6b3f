"""The membership of one member in a classic group as a pure state table: events go in, the next request comes out.

                  ┌────────────────── the group rebalances ──────────────────┐
                  ▼                                                          │
    JOINING ──Joined──► SYNCING ──Synced──► STABLE ──the group rebalances──► LETTING_GO ──LetGo──► JOINING
       ▲                   │                   └─────it is no member now───► LOST ────────LetGo──► JOINING
       └───refused─────────┘
    from any of them: Closed ──► CLOSED, an error that does not pass ──► FAILED

An assignment that the application has taken is let go of before the member joins again; one that it has not is dropped.
Heartbeats go on while the application lets go of an assignment, so that it has the rebalance's whole time for that.
After the loss of the membership there is nothing to keep alive. Whoever holds an assignment commits under the
generation and the member id that it came with, and so is refused once others may have its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from millrace.errors import ErrorCode

NO_GENERATION = -1


class Phase(Enum):
    """Where a member stands."""

    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    LETTING_GO = auto()
    LOST = auto()
    CLOSED = auto()
    FAILED = auto()


class Request(Enum):
    """What a member asks its group's coordinator."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()


@dataclass(frozen=True, slots=True)
class Named:
    """An event: the coordinator has given the member an id, with which it is to join (KIP-394)."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Joined:
    """An event: the member is in a generation of the group, whose leader now assigns."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Synced:
    """An event: the member has its assignment in this generation."""

    assignment: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """An event: a heartbeat is answered, and all is as it was."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An event: a request is refused with an error code, for which repeating it is no remedy."""

    code: int


@dataclass(frozen=True, slots=True)
class Expired:
    """An event: no request was answered for the session's timeout, so the coordinator may have removed the member."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An event: the application has taken its assignment."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """An event: the application has let go of its assignment."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """An event: the application wants the group to assign again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An event: something went wrong that no other attempt mends."""


@dataclass(frozen=True, slots=True)
class Closed:
    """An event: the application is done with the group."""


Event = Named | Joined | Synced | Alive | Refused | Expired | Taken | LetGo | Rejoin | Failed | Closed


@dataclass(frozen=True, slots=True)
class Membership:
    """The state of a member.

    `assignment` is one that the application has not taken yet, `is_held` says that it has taken one, and `is_stale`
    that it wants another one than that which is under way.
    """

    phase: Phase = Phase.JOINING
    member_id: str = ""
    generation: int = NO_GENERATION
    assignment: bytes | None = None
    is_held: bool = False
    is_stale: bool = False

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do for the member."""
        return self.phase in (Phase.CLOSED, Phase.FAILED)

    @property
    def must_let_go(self) -> bool:
        """Whether the application has to let go of its assignment before anything else can happen."""
        return self.phase in (Phase.LETTING_GO, Phase.LOST)

    @property
    def request(self) -> Request | None:
        """The request that is to be made next."""
        return REQUESTS.get(self.phase)


REQUESTS = {
    Phase.JOINING: Request.JOIN,
    Phase.SYNCING: Request.SYNC,
    Phase.STABLE: Request.HEARTBEAT,
    Phase.LETTING_GO: Request.HEARTBEAT,
}


def step(member: Membership, event: Event) -> Membership:  # noqa: C901, PLR0911 -- the table's rows
    """Returns the member's next state; an event that is not expected in its phase changes nothing."""
    match member.phase, event:
        case ((Phase.CLOSED | Phase.FAILED), _):
            return member
        case _, Closed():
            return replace(member, phase=Phase.CLOSED, assignment=None)
        case _, Failed():
            return replace(member, phase=Phase.FAILED, assignment=None)
        case _, Refused(code):
            return _refused(member, code)
        case Phase.JOINING, Named(member_id):
            return replace(member, member_id=member_id)
        case Phase.JOINING, Joined(member_id, generation):
            return replace(member, phase=Phase.SYNCING, member_id=member_id, generation=generation)
        case ((Phase.JOINING | Phase.SYNCING), Rejoin()):
            return replace(member, is_stale=True)
        case Phase.SYNCING, Synced(assignment):
            return _join(member) if member.is_stale else replace(member, phase=Phase.STABLE, assignment=assignment)
        case Phase.STABLE, Taken():
            return replace(member, assignment=None, is_held=True)
        case Phase.STABLE, Rejoin():
            return _let_go(member, Phase.LETTING_GO)
        case ((Phase.STABLE | Phase.LETTING_GO), Expired()):
            return _lost(member)
        case ((Phase.LETTING_GO | Phase.LOST), LetGo()):
            return _join(member)
    return member


def _refused(member: Membership, code: int) -> Membership:
    match code:
        case ErrorCode.UNKNOWN_MEMBER_ID:
            return _lost(replace(member, member_id=""))
        case ErrorCode.ILLEGAL_GENERATION:
            return _lost(member)
        case ErrorCode.REBALANCE_IN_PROGRESS:
            match member.phase:
                case Phase.SYNCING:
                    return _join(member)
                case Phase.STABLE:
                    return _let_go(member, Phase.LETTING_GO)
            return member
    return replace(member, phase=Phase.FAILED, assignment=None)


def _lost(member: Membership) -> Membership:
    return _let_go(replace(member, generation=NO_GENERATION), Phase.LOST)


def _let_go(member: Membership, phase: Phase) -> Membership:
    return replace(member, phase=phase, assignment=None) if member.is_held else _join(member)


def _join(member: Membership) -> Membership:
    return replace(member, phase=Phase.JOINING, assignment=None, is_held=False, is_stale=False)
