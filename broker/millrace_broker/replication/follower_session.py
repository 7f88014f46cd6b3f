"""The follower's side of an incremental fetch session (KIP-227): each request tells the leader only what has changed.

    state                           request                              answer
    no session                      session 0, epoch 0, all partitions   session 7: it begins; 0: the leader keeps none
    session 7, next epoch n         session 7, epoch n, what is new or   NONE: n + 1 is the next epoch
                                    changed, and what is forgotten
    session 7, any error, or none   session 7, epoch 0, all partitions   session 7 ends, and another one may begin
    session 7, unknown to leader    session 0, epoch 0, all partitions
    session 7, an answer not taken  session 7, epoch 0, all partitions: the leader takes what it has answered for known,
                                    and would not tell of that high watermark again

The epoch counts from 1 to 2³¹-1 and begins again at 1. A table without clock and socket; `replication.fetch_sessions`
is the leader's side.

A follower that is far behind asks for more while it still writes what it has fetched (`asked_ahead`):

    leader's log    [ committed .................................. | high watermark ... ]
    got, to be written        [ A ]
    asked for meanwhile            [ B ]

So leader and follower work at the same time. But a fetch also tells the leader where the follower's log ends, and the
leader commits by that. So a follower asks ahead only for what lies below the high watermark: those offsets are
committed already, whoever has them, and a follower that ends below the high watermark can't join the ISR.

The answer to a request that was sent ahead counts only if the log then ends where that request said: the caller
compares the position that it asked for with the one that it would ask for now.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from millrace.config import MAX_INT
from millrace.errors import ErrorCode, RecordError
from millrace.fs import Buffer
from millrace.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, read_header
from millrace.wire.encoder import contents
from millrace.wire.fetch import NO_SESSION, PartitionFetched, PartitionKey

INITIAL_EPOCH = 0
BATCH_LENGTH = struct.Struct(">8xi")


class Asked(NamedTuple):
    """The position from which a follower fetches one partition, and its leader epoch and log start offset."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int

    @property
    def position(self) -> tuple[int, int, int]:
        """The fetch offset, last fetched epoch and leader epoch: an answer holds only as long as these are the same."""
        return self[:3]


class SessionRequest(NamedTuple):
    """The content of one Fetch request in a session: the partitions that are new or changed, and those dropped."""

    session_id: int
    session_epoch: int
    asked: Mapping[PartitionKey, Asked]
    forgotten: tuple[PartitionKey, ...]


class FollowerSession:
    """A follower's fetch session with one leader (KIP-227). Only one request is unanswered at a time."""

    __slots__ = ("_epoch", "_has_missed_news", "_known", "_session_id")

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: Mapping[PartitionKey, Asked] = {}
        self._has_missed_news = False

    @property
    def is_established(self) -> bool:
        """Whether the leader keeps a session."""
        return self._epoch != INITIAL_EPOCH

    @property
    def asked(self) -> Mapping[PartitionKey, Asked]:
        """The positions that the newest request asks for, of all partitions in the session."""
        return self._known

    def request(self, asked: Mapping[PartitionKey, Asked]) -> SessionRequest:
        """Returns the next request, which makes the partitions in `asked` those of the session."""
        known, self._known = self._known, dict(asked)
        if self._has_missed_news:
            self._has_missed_news, self._epoch = False, INITIAL_EPOCH
        if not self.is_established:
            return SessionRequest(self._session_id, INITIAL_EPOCH, self._known, ())
        # Most partitions have not changed, and are the same objects: that is checked first, as it is fast.
        changed = {key: one for key, one in asked.items() if (old := known.get(key)) is not one and old != one}
        forgotten = tuple(key for key in known if key not in asked)
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Moves the session on after an answer without error; `session_id` is the answer's, 0 for no session."""
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
            return
        self._epoch = self._epoch + 1 if session_id == self._session_id and self._epoch < MAX_INT else 1
        self._session_id = session_id

    def missed_news(self) -> None:
        """Has the next request name all partitions, as the answer for one of them was not taken."""
        self._has_missed_news = True

    def failed(self, code: int = ErrorCode.NETWORK_EXCEPTION) -> None:
        """Resets the session after an answer with an error, or none at all: the next request names all partitions."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH


def asked_ahead(
    asked: Mapping[PartitionKey, Asked], fetched: Mapping[PartitionKey, PartitionFetched]
) -> dict[PartitionKey, Asked]:
    """Returns what to ask for next before an answer's records are written: the positions behind them, or nothing.

    Nothing is asked for if one partition of the answer has an error, a diverging epoch, or records up to its high
    watermark: the request would name a position of that partition that is about to change.
    """
    ahead: dict[PartitionKey, Asked] = {}
    for key, one in fetched.items():
        if one.error_code != ErrorCode.NONE or one.diverging_epoch is not None:
            return {}
        if len(one.records):
            if asked[key].fetch_offset >= one.high_watermark:  # a follower in sync: its batches need no walk
                return {}
            last = last_whole_batch(contents(one.records))
            if last is None or last.next_offset >= one.high_watermark:
                return {}
            epoch = max(last.partition_leader_epoch, asked[key].last_fetched_epoch)
            ahead[key] = asked[key]._replace(fetch_offset=last.next_offset, last_fetched_epoch=epoch)
    return ahead


def last_whole_batch(records: Buffer) -> BatchHeader | None:
    """Returns the header of the last complete batch, unchecked; None if there is none."""
    last, position, end = 0, 0, len(records)
    while end - position >= HEADER_BYTES:
        (length,) = BATCH_LENGTH.unpack_from(records, position)
        after = position + LOG_OVERHEAD_BYTES + length
        if after > end or after <= position:
            break
        last, position = position, after
    if position - last < HEADER_BYTES:
        return None
    try:
        return read_header(records, last)
    except RecordError:  # the append reports it
        return None
