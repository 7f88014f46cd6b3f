"""The transaction in which copied records, their offset map and the progress become visible at the target together.

One is open at a time, of one producer. What became of it is an outcome:

    COMMITTED   all of it counts
    ABORTED     nothing of it counts; `refused` has the partitions that can't be written ever, `failing` those that
                could not be now, and neither any where the brokers don't tell which partition it was
    FENCED      nothing counts: the group has another generation, or does not know this member
    UNKNOWN     nobody knows: the producer has ended between the commit and its answer

After an error of which the producer does not recover, the next transaction is one of a new producer with the same
transactional id, which first ends what the former one has left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.metadata import Partition
from millrace.client.producer.batch import Delivery
from millrace.client.producer.transaction_errors import (
    TransactionError,
    TransactionFailedError,
    TransactionTimeoutError,
)
from millrace.clock import Clock
from millrace.errors import BrokerError, ClientError, ErrorCode, MillraceError
from millrace.records.batch import NO_OFFSET, NO_TIMESTAMP, Buffer
from millrace.records.rebatch import SourceRun
from millrace_pipelines.mirror.copy import Part, Portion, Progress
from millrace_pipelines.mirror.offset_map import MappedRuns, Run, joined
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, MapRecord, map_partition, map_records
from millrace_pipelines.mirror.rights import ON_CLUSTER, TARGET, DeniedError, explained, needing
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.stops import Mirrored, is_refusal

logger = logging.getLogger(__name__)

FENCED_CODES = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class MapsDeniedError(DeniedError):
    """The mirror may not write offset maps, so that it can copy no partition."""


class Transactional(Protocol):
    """The calls of a transactional `Producer` that are made here."""

    def init_transactions(self) -> None:
        """Fences the transactional id's former producers."""

    def begin_transaction(self) -> None:
        """Opens a transaction."""

    def add_to_transaction(self, partitions: Iterable[Partition]) -> None:
        """Tells to which partitions the transaction sends."""

    def send_batch(self, topic: str, partition: int, batch: Buffer) -> Delivery:
        """Sends a ready batch."""

    def send(self, topic: str, /, value: Any = None, key: Any = None, *, partition: int | None = None) -> Delivery:
        """Sends a record."""

    def send_offsets_to_transaction(self, offsets: Mapping[Partition, GroupOffset], group: GroupMetadata) -> None:
        """Commits a group's offsets with the transaction."""

    def commit_transaction(self) -> None:
        """Commits."""

    def abort_transaction(self) -> None:
        """Aborts."""

    def close(self) -> None:
        """Closes the producer, which aborts what is open."""


class Outcome(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    UNKNOWN = "unknown"


class Sent(NamedTuple):
    """What the transaction has of one partition."""

    progress: Progress
    records: int = 0
    size_bytes: int = 0
    newest_ms: int = NO_TIMESTAMP


class Ended(NamedTuple):
    """The end of a transaction: what it had, what became of it, and whose fault it was where it was not committed."""

    outcome: Outcome
    sent: Mapping[Mirrored, Sent]
    refused: Mapping[Mirrored, MillraceError] = {}
    failing: Mapping[Mirrored, MillraceError] = {}
    error: MillraceError | None = None


@dataclass(slots=True)
class _Open:
    """The parts of one partition that were sent, each with the source offsets of its records."""

    progress: Progress
    parts: list[tuple[Delivery, tuple[SourceRun, ...]]] = field(default_factory=list)
    records: int = 0
    size_bytes: int = 0
    newest_ms: int = NO_TIMESTAMP

    @property
    def sent(self) -> Sent:
        """What is told of it."""
        return Sent(self.progress, self.records, self.size_bytes, self.newest_ms)

    def add(self, part: Part, delivery: Delivery) -> None:
        """Adds a part that was sent."""
        self.parts.append((delivery, part.runs))
        self.records += part.record_count
        self.size_bytes += len(part.batch)
        self.newest_ms = max(self.newest_ms, part.newest_ms)

    def runs(self) -> list[Run]:
        """Returns the runs of the offset map; raises ClientError where a batch's place at the target is not known."""
        found: list[Run] = []
        for delivery, runs in self.parts:
            base = delivery.result().offset
            if base == NO_OFFSET:
                raise ClientError("the target does not say where it has put a batch that it got twice")
            found += [Run(run.source_offset, base + run.index, run.count) for run in runs]
        return joined(found)


class Transaction:
    """The transactions of one mirror in this instance, one after the other.

    Args:
        mirror: The source's name.
        producer: Makes a producer with the transactional id of this instance.
        clock: For a transaction's age.
        gives_up: Says whether to leave open what the brokers don't answer, since the instance ends.
    """

    def __init__(
        self, mirror: str, producer: Callable[[], Transactional], clock: Clock, gives_up: Callable[[], bool]
    ) -> None:
        self._mirror = mirror
        self._new_producer = producer
        self._now_s = clock.monotonic_s
        self._gives_up = gives_up
        self._producer: Transactional | None = None
        self._open: dict[Mirrored, _Open] = {}
        self._failing: dict[Mirrored, MillraceError] = {}
        self._error: MillraceError | None = None
        self._is_begun = False
        self._begun_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, or could not begin."""
        return bool(self._open)

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches the open transaction has."""
        return sum(one.size_bytes for one in self._open.values())

    @property
    def age_s(self) -> float:
        """How long it has been open."""
        return self._now_s() - self._begun_s if self._open else 0.0

    def add(self, portions: Mapping[Mirrored, Portion]) -> None:
        """Sends portions within the transaction, and begins that; raises nothing: the end tells what went wrong."""
        if not self._open:
            self._begun_s = self._now_s()
        for what, portion in portions.items():
            self._open.setdefault(what, _Open(portion.progress)).progress = portion.progress
        if self._error is not None or self._failing:
            return
        try:
            producer = self._begun_producer()
            producer.add_to_transaction(self._written(portions))  # by one request
        except MillraceError as error:
            self._error = error
            return
        for what, portion in portions.items():
            self._send(producer, what, portion)

    def _send(self, producer: Transactional, what: Mirrored, portion: Portion) -> None:
        line = self._open[what]
        try:
            for part in portion.parts:
                line.add(part, producer.send_batch(*what.at_target, part.batch))
        except TransactionError as error:
            self._error = error
        except MillraceError as error:
            self._failing[what] = error

    def _written(self, portions: Mapping[Mirrored, Portion]) -> list[Partition]:
        """Returns the partitions to which records of these portions, and their maps, go."""
        having = [what for what, portion in portions.items() if portion.parts]
        maps = {map_partition(self._mirror, what.topic, what.partition) for what in having}
        return [*(what.at_target for what in having), *((OFFSET_MAP_TOPIC, one) for one in sorted(maps))]

    def commit(self, group: GroupMetadata) -> Ended:
        """Commits what was added, with the progress of a member of the group; returns what became of it."""
        producer = self._producer
        if producer is None or self._error is not None or self._failing:
            return self._abort(Outcome.ABORTED, self._error)
        try:
            maps = self._maps()
            offsets = {what.at_target: line.progress.to_commit for what, line in self._open.items()}
            with needing(TARGET, topic=f"Read on {self._topics()}", group=f"Read on group {group.group_id}"):
                producer.send_offsets_to_transaction(offsets, group)
            for one in maps:
                producer.send(OFFSET_MAP_TOPIC, one.value, one.key, partition=one.partition)
        except MillraceError as error:
            return self._abort(Outcome.FENCED if _is_fenced(error) else Outcome.ABORTED, error)
        return self._commit(producer)

    def abort(self) -> Ended:
        """Aborts what was added."""
        return self._abort(Outcome.ABORTED, None)

    def close(self) -> None:
        """Closes the producer, which aborts what is open."""
        producer, self._producer = self._producer, None
        self._ended(Outcome.ABORTED, None)
        if producer is None:
            return
        try:
            producer.close()
        except MillraceError as error:
            logger.warning("mirror %s: its producer was closed with an error: %s", self._mirror, error)

    def _begun_producer(self) -> Transactional:
        """Returns a producer whose transaction is open; raises MillraceError where there can be none now."""
        if self._producer is None:
            producer = self._new_producer()
            try:
                producer.init_transactions()
            except MillraceError:
                producer.close()
                raise
            self._producer = producer
        if not self._is_begun:
            self._producer.begin_transaction()
            self._is_begun = True
        return self._producer

    def _maps(self) -> list[MapRecord]:
        """Returns the runs of all that was sent, once its offsets at the target are known; raises the first error.

        So nothing else of the transaction is under way when the progress is sent: a broker of Apache Kafka refuses one
        of two requests that it has to verify at the coordinator at the same time (KIP-890).
        """
        return [
            record
            for what, line in self._open.items()
            for record in map_records(
                self._mirror, what.topic, what.partition, MappedRuns(line.progress.next_offset, line.runs())
            )
        ]

    def _commit(self, producer: Transactional) -> Ended:
        try:
            self._until_answered(producer.commit_transaction)
        except TransactionFailedError as error:
            return self._abort(Outcome.ABORTED, error)
        except MillraceError as error:
            self._drop_producer()
            return self._ended(Outcome.UNKNOWN, error)
        return self._ended(Outcome.COMMITTED, None)

    def _abort(self, outcome: Outcome, error: MillraceError | None) -> Ended:
        fatal: MillraceError | None = None
        if self._producer is not None and self._is_begun:
            try:
                self._until_answered(self._producer.abort_transaction)
            except MillraceError as one:
                fatal = one
        failing, refused = self._culprits()  # all that was sent has its report by now
        if fatal is not None:
            error = error or fatal
            self._drop_producer()
        return self._ended(outcome, error and self._explained(error))._replace(failing=failing, refused=refused)

    def _topics(self) -> str:
        """Returns how a right on the topics of the open transaction is told: by name, where it has one alone."""
        names = {what.target for what in self._open}
        return f"topic {names.pop()}" if len(names) == 1 else "the mirrored topics"

    def _explained(self, error: MillraceError) -> MillraceError:
        if OFFSET_MAP_TOPIC in str(error.__cause__ or error):  # the coordinator's error names the partition
            told = explained(error, TARGET, topic=f"Write on topic {OFFSET_MAP_TOPIC}")
            return MapsDeniedError(told.broker_code, str(told)) if isinstance(told, DeniedError) else told
        return explained(
            error,
            TARGET,
            topic=f"Write on {self._topics()}",
            transactional_id=f"Write on transactional ids that begin with {group_of(self._mirror)}-",
            cluster=f"IdempotentWrite {ON_CLUSTER}",
        )

    def _until_answered(self, call: Callable[[], None]) -> None:
        """Makes a call until it is answered; raises TransactionTimeoutError where this instance ends before that."""
        while True:
            try:
                call()
            except TransactionTimeoutError:
                if self._gives_up():
                    raise
            else:
                return

    def _culprits(self) -> tuple[dict[Mirrored, MillraceError], dict[Mirrored, MillraceError]]:
        """Returns the partitions whose batches failed by themselves: for now, and for ever."""
        found = dict(self._failing)
        for what, line in self._open.items():
            errors = (delivery.report().error for delivery, _ in line.parts if delivery.done())
            own = next((one for one in errors if one is not None and not isinstance(one, TransactionError)), None)
            if own is not None:
                found.setdefault(what, own)
        found = {what: explained(one, TARGET, topic=f"Write on topic {what.target}") for what, one in found.items()}
        refused = {what: error for what, error in found.items() if is_refusal(error)}
        return {what: error for what, error in found.items() if what not in refused}, refused

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(MillraceError):
                producer.close()

    def _ended(self, outcome: Outcome, error: MillraceError | None) -> Ended:
        sent = {what: line.sent for what, line in self._open.items()}
        self._open, self._failing, self._error, self._is_begun = {}, {}, None, False
        return Ended(outcome, sent, error=error)


def _is_fenced(error: MillraceError) -> bool:
    cause = error.__cause__ if isinstance(error, TransactionError) else error
    return isinstance(cause, BrokerError) and cause.broker_code in FENCED_CODES
