"""Chooses which partitions of an incremental fetch are answered (KIP-227), as a table without clock or socket.

    request: session id, epoch            what happens
    any, -1 (final)                       all is answered, without a session; the session of this id ends
    any, 0 (initial)                      all is answered, and a session begins if there is room; that of this id ends
    id, n, the session's next epoch       the request's partitions are added or changed, and those that it forgets are
                                          removed; all partitions of the session are read, those with news answered
    id, another n                         INVALID_FETCH_SESSION_EPOCH
    unknown id                            FETCH_SESSION_ID_NOT_FOUND
    id, from a version that names topics  FETCH_SESSION_TOPIC_ID_ERROR
    by id where the session's did not,
    or the other way round

A partition has news where it has records, another high watermark or log start offset, a diverging epoch, or an error.
A partition that gave records moves behind all others, so that each gets its turn when the limit of bytes cuts a
response short.

A follower's session reads only the partitions that the request names, those that have changed (`PartitionChanges`), and
those that gave an error or have more to read. As it is not told of every other change, and the leader has to know that
the follower is there, it reads all of them twice a second.

The epoch counts from 1 to 2³¹-1 and begins again at 1. A full table drops a session that has been silent for two
minutes, or one that is older than that and has no more partitions than the new one. A follower's new session also
replaces any consumer's, however young or large; a follower's session yields to a consumer's only once it has been
silent for so long. Otherwise the response has session id 0, and the client goes on with full requests. A session
without partitions ends, and so does one that grows while all sessions together have more partitions than are kept.

`PartitionChanges` tells them which led partitions have changed, so that they need not look at thousands of others:

    changes     … 40: weather-3    41: weather-7    42: weather-3    end 43
    a session that has read up to 41 finds weather-7 and weather-3 behind it

Only the newest changes are kept. A session that has not read for so long looks at all its partitions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.config import MAX_INT
from millrace.errors import ErrorCode
from millrace.turns import each
from millrace.wire.fetch import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    PartitionFetched,
    PartitionKey,
)

INITIAL_EPOCH = 0
MAX_PARTITIONS = 500_000  # in all sessions
EVICTION_MS = 120_000
READ_ALL_INTERVAL_MS = 500
NEVER_MS = -READ_ALL_INTERVAL_MS

Fetched = Sequence[tuple[PartitionKey, PartitionFetched]]
NewId = Callable[[], int]


KEPT = 10_000


class PartitionChanges:
    """The newest `kept` keys of partitions that have changed, in their order; `end` counts all changes so far."""

    __slots__ = ("_newest", "end")

    def __init__(self, kept: int = KEPT) -> None:
        self._newest: deque[PartitionKey] = deque(maxlen=kept)
        self.end = 0

    def note(self, key: PartitionKey) -> None:
        """Adds the key of a partition with new records, high watermark, log start, leader epoch or leader."""
        self._newest.append(key)
        self.end += 1

    def since(self, position: int) -> list[PartitionKey] | None:
        """Returns the keys added since `end` was `position`; None if some of them are no longer kept."""
        count = self.end - position
        if count > len(self._newest):
            return None
        return [self._newest[place] for place in range(-count, 0)]


class SessionResponse(NamedTuple):
    """The content of a Fetch response: an error of the whole request, the session's id, and the partitions."""

    error_code: int
    session_id: int
    fetched: Fetched


class FetchContext:
    """The partitions to read for a Fetch request, and how to answer it. The base class is for one without a session.

    `is_told_of_changes` says whether partitions that are not in `wanted` may be read later: `changed` returns them.
    """

    __slots__ = ("wanted",)
    kind = "sessionless"
    is_told_of_changes = False

    def __init__(self, wanted: Mapping[PartitionKey, FetchPartition]) -> None:
        self.wanted = wanted

    def changed(self) -> Mapping[PartitionKey, FetchPartition]:
        """Returns what the client wants of the session's partitions that have changed since the last call."""
        return {}

    def respond(self, fetched: Fetched, now_ms: int, again: Iterable[PartitionKey] = ()) -> SessionResponse:  # noqa: ARG002
        """Returns the response with what was read of each wanted partition; called once.

        `again` has the partitions that are to be read for the session's next request even if they do not change.
        """
        return SessionResponse(ErrorCode.NONE, NO_SESSION, fetched)

    def throttled(self) -> SessionResponse:
        """Returns a throttled client's response, without partitions; the session is left as it is."""
        return SessionResponse(ErrorCode.NONE, NO_SESSION, ())


class FetchSessionError(FetchContext):
    """A Fetch request that does not fit its session; nothing is read for it."""

    kind = "refused"

    def __init__(self, code: ErrorCode) -> None:
        super().__init__({})
        self.code = code

    def respond(self, fetched: Fetched, now_ms: int, again: Iterable[PartitionKey] = ()) -> SessionResponse:  # noqa: ARG002
        """Returns the response with the error and no partitions."""
        return self.throttled()

    def throttled(self) -> SessionResponse:
        """Returns the response with the error and no partitions."""
        return SessionResponse(self.code, NO_SESSION, ())


@dataclass(slots=True)
class _Cached:
    """A partition in a session: what the client wants of it, and the offsets last sent to the client.

    A client takes no offsets from an error or a diverging epoch: after those, the high watermark counts as not sent.
    """

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    @classmethod
    def sent(cls, wanted: FetchPartition, fetched: PartitionFetched) -> _Cached:
        """Returns a partition of a new session, whose first response has `fetched`."""
        return cls(wanted, -1 if fetched.is_urgent else fetched.high_watermark, fetched.log_start_offset)

    def take(self, fetched: PartitionFetched) -> bool:
        """Stores the offsets that were read; returns whether the response must have the partition, as it has news."""
        news = (
            len(fetched.records) > 0
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
            or fetched.is_urgent
        )
        self.high_watermark = -1 if fetched.is_urgent else fetched.high_watermark
        self.log_start_offset = fetched.log_start_offset
        return news


@dataclass(slots=True)
class _Session:
    session_id: int
    uses_topic_ids: bool
    created_ms: int
    used_ms: int
    partitions: OrderedDict[PartitionKey, _Cached]
    is_followers: bool = False
    epoch: int = INITIAL_EPOCH + 1
    to_read: dict[PartitionKey, None] = field(default_factory=dict)  # a follower's, in this order
    changes_end: int = 0  # up to which changes are in `to_read`
    read_all_ms: int = NEVER_MS

    def update(self, wanted: Mapping[PartitionKey, FetchPartition], forgotten: Sequence[PartitionKey]) -> bool:
        """Adds or changes `wanted` partitions, removes `forgotten` ones; returns whether there are more than before."""
        before = len(self.partitions)
        for key, one in wanted.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = _Cached(one)
            else:
                known.wanted = one
        for key in forgotten:
            self.partitions.pop(key, None)
        return len(self.partitions) > before


class FetchSessions:
    """The fetch sessions (KIP-227) of consumers and followers with this broker.

    Args:
        slots: the number of sessions that are kept at most (`max.incremental.fetch.session.cache.slots`).
        new_id: returns a random positive number.
        changes: the changes of led partitions; with None, followers' sessions read all their partitions each time.
    """

    def __init__(self, slots: int, new_id: NewId, changes: PartitionChanges | None = None) -> None:
        self._changes = changes
        self._slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, _Session] = OrderedDict()  # the one that was used least recently first
        self.evictions = 0
        self.fetches: Counter[str] = Counter()  # by kind

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum([len(session.partitions) for session in tuple(self._sessions.values())])

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: Mapping[PartitionKey, FetchPartition],
        forgotten: Sequence[PartitionKey],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        is_followers: bool = False,
    ) -> FetchContext:
        """Returns the context of a Fetch request: what to read and how to respond. `now_ms` is monotonic.

        `wanted` and `forgotten` are the partitions that the request names; `is_followers` says that a broker sent it.
        """
        session = self._sessions.get(session_id)
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            context = (
                FetchContext(wanted) if epoch == FINAL_EPOCH else _Full(self, wanted, uses_topic_ids, is_followers)
            )
        elif session is None:
            context = FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session.epoch != epoch:
            context = FetchSessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        elif session.uses_topic_ids != uses_topic_ids:
            context = FetchSessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        else:
            context = self._go_on(session, wanted, forgotten, now_ms, has_changes=is_followers and uses_topic_ids)
        self.fetches[context.kind] += 1
        return context

    def _go_on(
        self,
        session: _Session,
        wanted: Mapping[PartitionKey, FetchPartition],
        forgotten: Sequence[PartitionKey],
        now_ms: int,
        *,
        has_changes: bool,
    ) -> FetchContext:
        has_grown = session.update(wanted, forgotten)
        is_too_much = has_grown and self.partition_count > MAX_PARTITIONS
        if is_too_much or not session.partitions:
            del self._sessions[session.session_id]
            return FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND) if is_too_much else FetchContext(wanted)
        session.used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        self._sessions.move_to_end(session.session_id)
        if has_changes and self._changes is not None:
            return _IncrementalOfFollower(session, self._changes, wanted, now_ms)
        return _Incremental(session, session.partitions)

    def begin(
        self,
        partitions: OrderedDict[PartitionKey, _Cached],
        now_ms: int,
        *,
        uses_topic_ids: bool,
        is_followers: bool,
    ) -> int:
        """Begins a session and returns its id; 0 where no other session may be evicted for it."""
        if len(self._sessions) >= self._slots and not self._evict(len(partitions), now_ms, is_followers=is_followers):
            return NO_SESSION
        if self.partition_count + len(partitions) > MAX_PARTITIONS:
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        self._sessions[session_id] = _Session(session_id, uses_topic_ids, now_ms, now_ms, partitions, is_followers)
        return session_id

    def _evict(self, size: int, now_ms: int, *, is_followers: bool) -> bool:
        if not self._sessions:
            return False
        chosen = next(iter(self._sessions.values()))
        if now_ms - chosen.used_ms <= EVICTION_MS:
            evictable = [
                one
                for one in self._sessions.values()
                if now_ms - one.created_ms > EVICTION_MS or (is_followers and not one.is_followers)
            ]
            if not evictable:
                return False
            chosen = min(evictable, key=_worth)
            if (is_followers, size, NO_SESSION) < _worth(chosen):
                return False
        del self._sessions[chosen.session_id]
        self.evictions += 1
        return True


def _worth(session: _Session) -> tuple[bool, int, int]:
    return session.is_followers, len(session.partitions), session.session_id


class _Full(FetchContext):
    """A Fetch request that names all partitions, and may begin a session."""

    kind = "full"

    def __init__(
        self,
        sessions: FetchSessions,
        wanted: Mapping[PartitionKey, FetchPartition],
        uses_topic_ids: bool,
        is_followers: bool,
    ) -> None:
        super().__init__(wanted)
        self._sessions = sessions
        self._uses_topic_ids = uses_topic_ids
        self._is_followers = is_followers

    def respond(self, fetched: Fetched, now_ms: int, again: Iterable[PartitionKey] = ()) -> SessionResponse:  # noqa: ARG002
        cached = OrderedDict((key, _Cached.sent(self.wanted[key], one)) for key, one in each(fetched))
        session_id = self._sessions.begin(
            cached, now_ms, uses_topic_ids=self._uses_topic_ids, is_followers=self._is_followers
        )
        return SessionResponse(ErrorCode.NONE, session_id, fetched)


class _Incremental(FetchContext):
    """A Fetch request inside a session, answered with the partitions that have new records, offsets or an error."""

    kind = "incremental"

    def __init__(self, session: _Session, keys: Iterable[PartitionKey]) -> None:
        super().__init__({key: session.partitions[key].wanted for key in keys})
        self._session = session
        self._expected_epoch = session.epoch

    def respond(self, fetched: Fetched, now_ms: int, again: Iterable[PartitionKey] = ()) -> SessionResponse:  # noqa: ARG002
        session = self._session
        if session.epoch != self._expected_epoch:
            return SessionResponse(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, ())
        known = session.partitions
        news = [(key, one) for key, one in each(fetched) if key in known and known[key].take(one)]
        for key, one in news:
            if len(one.records):
                session.partitions.move_to_end(key)
        return SessionResponse(ErrorCode.NONE, session.session_id, news)

    def throttled(self) -> SessionResponse:
        session = self._session
        is_current = session.epoch == self._expected_epoch
        code = ErrorCode.NONE if is_current else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return SessionResponse(code, session.session_id, ())


class _IncrementalOfFollower(_Incremental):
    """A Fetch request inside a follower's session, for which only partitions that may have changed are read."""

    is_told_of_changes = True

    def __init__(
        self, session: _Session, changes: PartitionChanges, named: Iterable[PartitionKey], now_ms: int
    ) -> None:
        self._session = session
        self._changes = changes
        session.to_read |= dict.fromkeys(named)
        self.changed()
        keys: Iterable[PartitionKey] = [key for key in session.to_read if key in session.partitions]
        if now_ms - session.read_all_ms >= READ_ALL_INTERVAL_MS:
            session.read_all_ms, keys = now_ms, session.partitions
        super().__init__(session, keys)

    def respond(self, fetched: Fetched, now_ms: int, again: Iterable[PartitionKey] = ()) -> SessionResponse:
        response = super().respond(fetched, now_ms, again)
        if response.error_code == ErrorCode.NONE:
            self._session.to_read = dict.fromkeys(again)
        return response

    def changed(self) -> Mapping[PartitionKey, FetchPartition]:
        session = self._session
        found = self._changes.since(session.changes_end)
        session.changes_end = self._changes.end
        keys = [key for key in found if key in session.partitions] if found is not None else list(session.partitions)
        session.to_read |= dict.fromkeys(keys)
        return {key: session.partitions[key].wanted for key in keys}


def next_epoch(epoch: int) -> int:
    """Returns the session epoch that the client's next request must have."""
    return 1 if epoch == MAX_INT else epoch + 1
