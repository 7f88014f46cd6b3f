"""The follower's side of an incremental fetch session (KIP-227): each request tells the leader only what has changed.

    state                           request                              answer
    no session                      session 0, epoch 0, all partitions   session 7: it begins; 0: the leader keeps none
    session 7, next epoch n         session 7, epoch n, what is new or   NONE: n + 1 is the next epoch
                                    changed, and what is forgotten
    session 7, any error, or none   session 7, epoch 0, all partitions   session 7 ends, and another one may begin
    session 7, unknown to leader    session 0, epoch 0, all partitions

The epoch counts from 1 to 2³¹-1 and begins again at 1. A table without clock and socket; `replication.fetch_sessions`
is the leader's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.config import MAX_INT
from millrace.errors import ErrorCode
from millrace.wire.fetch import NO_SESSION
from millrace.wire.fetch_request import PartitionKey

INITIAL_EPOCH = 0


class Asked(NamedTuple):
    """What a follower asks of one partition, and the leader epoch in which it does."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int

    @property
    def position(self) -> tuple[int, int, int]:
        """The fetch offset, the last fetched epoch and the leader epoch, on which the answer depends."""
        return self[:3]


class SessionRequest(NamedTuple):
    """What one Fetch request of a session asks for and forgets."""

    session_id: int
    session_epoch: int
    asked: Mapping[PartitionKey, Asked]
    forgotten: tuple[PartitionKey, ...]


class FollowerSession:
    """The session with one leader. A request is answered, or lost, before the next one is made."""

    __slots__ = ("_epoch", "_known", "_session_id")

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: Mapping[PartitionKey, Asked] = {}

    @property
    def is_established(self) -> bool:
        """Whether the leader keeps a session."""
        return self._epoch != INITIAL_EPOCH

    @property
    def asked(self) -> Mapping[PartitionKey, Asked]:
        """What the newest request asks of all partitions."""
        return self._known

    def request(self, asked: Mapping[PartitionKey, Asked]) -> SessionRequest:
        """Returns the next request, by which the leader answers for exactly these partitions."""
        known, self._known = self._known, dict(asked)
        if not self.is_established:
            return SessionRequest(self._session_id, INITIAL_EPOCH, self._known, ())
        # Most partitions have not changed, and are the same objects: that is checked first, as it is fast.
        changed = {key: one for key, one in asked.items() if (old := known.get(key)) is not one and old != one}
        forgotten = tuple(key for key in known if key not in asked)
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Takes an answer without an error."""
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
            return
        self._epoch = self._epoch + 1 if session_id == self._session_id and self._epoch < MAX_INT else 1
        self._session_id = session_id

    def failed(self, code: int = ErrorCode.NETWORK_EXCEPTION) -> None:
        """Takes an answer with an error, or none at all: the next request names all partitions again."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
