"""Offsets that are absent from what a log's leader answers, and reading on past batches that can't be read.

    topic                      offsets that no batch has
    compacted                  compaction removed their records, if they lie below the log's end
    not compacted, or unknown  damage, or a topic that was compacted before: MissingOffsetsError

A log that nobody compacts has each offset up to its end. So where one is absent, a batch was lost or says wrong
offsets, and whoever went on would take a log without these records for a whole one. The topic is asked for at its first
gap only, and the log's end where a gap reaches beyond what is known of it.

Missing offsets may be accepted, but only those that are: a damaged base offset makes good batches look like a gap. So
the log is asked for the gap's last offset, and has to answer with what comes later.

Where the loss of offsets is accepted, reading goes on past batches that can't be read:

    offset ──► [ intact ] [ damage: offsets a to b - 1, and their bytes ] [ intact ] ──► …

What an answer holds is told apart by `records.damage`. Where its bytes don't tell at which offset batches go on, the
log is asked for later ones: each time twice as far, and then in between. So few questions are asked, and what is kept
of the log is one answer. A broker that can't serve an offset of a damaged batch may show its bytes to a fetch from
the offset before.

A broker that doesn't see past damage does not name the aborted transactions behind it, and an abort marker may be among
what is damaged. So batches of transactions are not read on in the same answer, but the log is asked again from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.configs import Configs
from millrace.client.fetched import FetchedData
from millrace.errors import (
    BrokerError,
    CorruptRecordError,
    ErrorCode,
    MillraceError,
    OffsetOutOfRangeError,
    RecordError,
)
from millrace.records.batch import HEADER_BYTES
from millrace.records.damage import Intact, Rules, has_transactional, intact, resumed
from millrace.records.intervals import Interval
from millrace.records.message_set import first_offset
from millrace.records.record import Record

if TYPE_CHECKING:
    from millrace.client.cluster import Cluster
    from millrace.records.intervals import Interval

logger = logging.getLogger(__name__)

CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
WAY_ON = "the option to accept missing offsets goes on behind them"


class MissingOffsetsError(RecordError, code=ErrorCode.CORRUPT_MESSAGE):
    """A partition's leader has no batch with some offsets, though compaction can't have removed them."""


class AbsentOffsets:
    """Decides whether offsets that a reader finds missing were removed by compaction, or are lost.

    Args:
        cluster: Returns a context manager that yields the cluster to ask.
        log_end: Returns a partition's high watermark.
        serves: Returns whether a partition's leader has records in an interval, though a fetch passed over them.
        accept: Whether to go on past lost offsets, with a warning.
    """

    def __init__(
        self,
        cluster: Callable[[], AbstractContextManager[Cluster]],
        log_end: Callable[[Cluster, str, int], int],
        serves: Callable[[Cluster, str, int, Interval], bool],
        *,
        accept: bool = False,
    ) -> None:
        self._cluster = cluster
        self._log_end = log_end
        self._serves = serves
        self.accept = accept
        self._compacted: set[str] = set()
        self._known_ends: dict[tuple[str, int], int] = {}

    def check(self, topic: str, partition: int, gap: Interval, *, is_inside: bool = False) -> None:
        """Raises MissingOffsetsError for missing offsets (`gap`) that compaction can't have removed.

        With `accept` it logs a warning instead, unless the leader does serve records in the gap. `is_inside` says that
        the gap is a whole batch of which only some offsets are missing.
        """
        reason = self._unexplained(topic, partition, gap)
        if reason is None:
            return
        message = f"{topic}-{partition}: offsets among {gap} are missing, and {reason}"
        if not self.accept:
            raise MissingOffsetsError(f"{message}; {WAY_ON}")
        with self._cluster() as cluster:
            if not is_inside and self._serves(cluster, topic, partition, gap):
                raise MissingOffsetsError(f"{message}; the log has some of them: a batch's base offset is wrong")
        logger.warning("%s", message)

    def _unexplained(self, topic: str, partition: int, gap: Interval) -> str | None:
        """Returns why compaction can't have removed the offsets of a gap; None where it can have."""
        if topic in self._compacted and gap.until_offset <= self._known_ends.get((topic, partition), 0):
            return None
        try:
            with self._cluster() as cluster:
                if topic not in self._compacted and not is_compacted(cluster, topic):
                    return "the topic is not compacted: batches are lost or damaged (millrace verify tells more)"
                self._compacted.add(topic)
                end_offset = self._known_ends[topic, partition] = self._log_end(cluster, topic, partition)
        except MillraceError as error:
            return f"whether compaction explains it can't be asked: {error}"
        return None if gap.until_offset <= end_offset else f"the log ends at offset {end_offset}: a batch is damaged"


def is_compacted(cluster: Cluster, topic: str) -> bool:
    """Returns whether compaction removes records of the topic now; raises UnknownTopicError or BrokerError."""
    described = Configs(cluster).describe_topics([topic], [CLEANUP_POLICY])[topic]
    policy = described.get(CLEANUP_POLICY)
    return policy is not None and COMPACT in (policy.value or "").split(",")


ONE_BATCH = 1

Fetch = Callable[[int, int | None], FetchedData]
"""Fetches from an offset on, at most so many bytes, but at least one batch; None is the reader's usual limit."""


class Damage(NamedTuple):
    """Offsets whose batches can't be decoded, or read by the broker, and why; `data` has the bytes that it sent."""

    interval: Interval
    data: bytes
    reason: str


class ReadOn(NamedTuple):
    """Records that were read past damaged batches, and the offset to fetch next."""

    records: list[Record]
    next_offset: int


def is_damage(error: MillraceError) -> bool:
    """Returns whether an error says that a batch is damaged, as this client or the broker can't read it."""
    if isinstance(error, BrokerError):
        return error.broker_code == ErrorCode.CORRUPT_MESSAGE
    return isinstance(error, RecordError)


class _Served(NamedTuple):
    """The base offset of a batch that the broker serves, and the offset for which it was fetched."""

    base_offset: int
    offset: int


class DamagedBatches:
    """Reads one partition's log past damaged batches.

    Args:
        name: The partition's name, for warnings.
        fetch: Fetches from the partition's leader.
        rules: The checks that a batch has to pass besides its CRC.
    """

    def __init__(self, name: str, fetch: Fetch, rules: Rules) -> None:
        self._name = name
        self._fetch = fetch
        self._rules = rules

    def read_on(self, span: Interval, error: MillraceError, *, goes_on: bool = False) -> ReadOn:
        """Returns the readable records in `span`, where reading failed with `error`, and the offset to fetch next.

        `goes_on` says that a batch that was read before ends exactly where the span begins.
        """
        records, next_offset = list[Record](), span.from_offset
        for part in self.parts(*span, error, goes_on=goes_on):
            if isinstance(part, Damage):
                next_offset = part.interval.until_offset
            else:
                for batch in part.batches():
                    records += [one for one in batch.records() if one.offset in range(*span)]
                    next_offset = min(batch.header.next_offset, span.until_offset)
        return ReadOn(records, next_offset)

    def parts(
        self, offset: int, until_offset: int, error: MillraceError, *, goes_on: bool = False
    ) -> Iterator[FetchedData | Damage]:
        """Yields, in order of offsets, data that can be read and damaged ranges, from `offset` to the end of a fetch.

        Args:
            offset: Where reading failed, or the beginning of the answer in which it did.
            until_offset: Where reading ends.
            error: The failure with which reading ended; its text is the reason of damage that shows no other.
            goes_on: Whether a batch that was read before ends exactly at `offset`.
        """
        answer: FetchedData | None = self._answer(offset)
        is_first = True
        while answer is not None and offset < until_offset:
            found = self._intact(answer, goes_on=goes_on)
            if found.next_offset > offset:
                yield answer._replace(records=answer.records[: found.end])
                offset, is_first = found.next_offset, False
            if found.error is None and not is_first:
                return
            if offset >= until_offset:
                return
            rest = b"" if found.is_gap else answer.records[found.end :]  # the batch behind a gap is not in it
            answer = answer._replace(records=rest, asked_offset=offset)
            damage, answer = self._damage(answer, until_offset, found.error or error)
            logger.warning("%s: offsets %s are passed over: %s", self._name, damage.interval, damage.reason)
            yield damage
            offset, is_first, goes_on = damage.interval.until_offset, False, False

    def _answer(self, offset: int) -> FetchedData:
        """Returns what a fetch at `offset` finds, with no bytes where the broker sends none.

        If a fetch there finds no readable batch, the bytes after the batch before it, by a fetch from `offset - 1`, are
        tried.
        """
        answer = self._try(offset)
        if answer is not None and self._intact(answer).next_offset > offset:
            return answer
        before = self._try(offset - 1) if offset else None
        if before is not None:
            found = self._intact(before)
            if found.next_offset == offset and found.end < len(before.records):
                return before._replace(records=before.records[found.end :], asked_offset=offset)
        if answer is not None:
            return answer
        one = self._try(offset, ONE_BATCH)
        return FetchedData(b"", 0, 0, 0, asked_offset=offset) if one is None else one

    def _try(self, offset: int, max_bytes: int | None = None) -> FetchedData | None:
        try:
            return self._fetch(offset, max_bytes)
        except MillraceError as error:
            if not is_damage(error) and not isinstance(error, OffsetOutOfRangeError):
                raise
            return None

    def _intact(self, answer: FetchedData, *, goes_on: bool = False) -> Intact:
        found = intact(answer.records, answer.asked_offset, self._rules, goes_on=goes_on)
        if not found.is_settled:
            raise CorruptRecordError(f"{self._name}: {found.error}; what was read before may be wrong")
        return found

    def _damage(
        self, answer: FetchedData, until_offset: int, error: MillraceError
    ) -> tuple[Damage, FetchedData | None]:
        """Returns the damage at the start of a fetch response, and the data behind it; None if that must be fetched."""
        offset, records = answer.asked_offset, answer.records
        found = resumed(records, offset, self._rules)
        if found is None or found[1] >= until_offset:  # its offset may be damaged, too
            served = self._next_served(offset, until_offset, records)
            rest = self._try(served.offset) if served.base_offset < until_offset else None
            behind = -1 if rest is None else records.find(rest.records[:HEADER_BYTES])
            interval = Interval(offset, min(served.base_offset, until_offset))
            damage = Damage(interval, records if behind < 0 else records[:behind], str(error))
            return damage, None if rest is None else rest._replace(asked_offset=served.base_offset)
        end, next_offset = found
        damage = Damage(Interval(offset, min(next_offset, until_offset)), records[:end], str(error))
        if has_transactional(records[end:]):
            return damage, None
        return damage, answer._replace(records=records[end:], asked_offset=next_offset)

    def _next_served(self, offset: int, until_offset: int, damaged: bytes) -> _Served:
        """Returns the next intact batch behind the damage that the broker serves; if none, one at `until_offset`.

        The search goes in growing steps, then by halves.
        """
        failed, step, last = offset, 1, until_offset - 1
        while (served := self._served(min(failed + step, last), offset, damaged)) is None:
            if failed + step >= last:
                return _Served(until_offset, until_offset)
            failed, step = failed + step, 2 * step
        while min(served) - failed > 1:
            between = (failed + min(served)) // 2
            found = self._served(between, offset, damaged)
            served, failed = (served, between) if found is None else (found, failed)
        return served

    def _served(self, offset: int, from_offset: int, damaged: bytes) -> _Served | None:
        """Returns the intact batch that a fetch at `offset` gets; None for a damaged one, for none, or for none new."""
        answer = None if offset <= from_offset else self._try(offset, ONE_BATCH)
        if answer is None or not answer.records or damaged.startswith(answer.records):
            return None
        base_offset = first_offset(answer.records)
        found = intact(answer.records, offset, self._rules)
        return _Served(base_offset, offset) if found.next_offset > offset and base_offset > from_offset else None
