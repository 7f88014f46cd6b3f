"""Why one partition, or one topic, is not mirrored any more: a sentence, and the option with which it would go on."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from millrace.client.answers import is_retriable
from millrace.errors import (
    BrokerError,
    ErrorCode,
    MillraceError,
    PolicyViolationError,
    RecordError,
)
from millrace_pipelines.mirror.settings import Accept

REFUSING_CODES = frozenset(
    {
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


class StopKind(StrEnum):
    """What stopped a partition, in a word, for metrics."""

    RECREATED = "recreated"
    PURGED = "purged"
    TRUNCATED = "truncated"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    REFUSED = "refused"


class Stop(NamedTuple):
    """The sentence that says why a partition stopped; `option` goes on in spite of it, where there is one."""

    kind: StopKind
    reason: str
    option: Accept | None = None


class Mirrored(NamedTuple):
    """A partition of a source topic, and the topic of the target that has the same partition."""

    topic: str
    target: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def at_source(self) -> tuple[str, int]:
        """The partition in the source cluster."""
        return self.topic, self.partition

    @property
    def at_target(self) -> tuple[str, int]:
        """The partition in the target cluster."""
        return self.target, self.partition


def recreated(one: Mirrored) -> Stop:
    """Returns the stop of a topic that was deleted and created again at the source."""
    what = f"topic {one.topic} was deleted and created again at the source"
    way_on = "goes on with the new topic", Accept.RECREATED_TOPIC
    return _stop(one, StopKind.RECREATED, what, way_on, has_option=True)


def purged(one: Mirrored, progress: int, log_start: int) -> Stop:
    """Returns the stop of a partition whose source has deleted offsets that were not mirrored yet."""
    return Stop(
        StopKind.PURGED,
        f"{one}: the source has deleted offsets {progress}-{log_start - 1} before they were mirrored; "
        f"{Accept.LOST_OFFSETS.flag} goes on behind them",
        Accept.LOST_OFFSETS,
    )


def truncated(one: Mirrored, progress: int, *, is_copied: bool) -> Stop:
    """Returns the stop of a partition whose source has lost, or replaced, records that were mirrored."""
    what = f"{one}: the source's log was cut below offset {progress}, or has other records there than were mirrored"
    way_on = "goes on at the end that it has now", Accept.TRUNCATED_LOG
    return _stop(one, StopKind.TRUNCATED, what, way_on, has_option=is_copied)


def ended(one: Mirrored, end_offset: int) -> Stop:
    """Returns the stop of a partition into which mirroring has ended, and of which the source has nothing any more."""
    what = f"{one}: its mirroring has ended at offset {end_offset}, and the source has deleted all that was mirrored"
    return _stop(one, StopKind.REFUSED, what, ("", Accept.LOST_OFFSETS), has_option=False)


def _stop(one: Mirrored, kind: StopKind, what: str, way_on: tuple[str, Accept], *, has_option: bool) -> Stop:
    """Returns a stop with its ways on; a log that is followed has the source's offsets, so that it begins again."""
    begin_again = f"delete topic {one.target} on the target to mirror it from the beginning"
    if has_option:
        goes_on, option = way_on
        return Stop(kind, f"{what}; {option.flag} {goes_on}; or {begin_again}", option)
    return Stop(kind, f"{what}; {begin_again}")


def foreign(one: Mirrored) -> Stop:
    """Returns the stop of a partition whose target has records, though this mirror has no progress there."""
    return Stop(
        StopKind.FOREIGN,
        f"{one}: partition {one.partition} of {one.target} has records at the target, and this mirror has no progress "
        f"there: they are not its own, or its group's offsets and the offset map were deleted; delete {one.target} on "
        "the target to mirror it from the beginning",
    )


def damaged(one: Mirrored, error: MillraceError) -> Stop:
    """Returns the stop of a partition that can't be read at the source without a gap."""
    return Stop(StopKind.DAMAGED, f"{one}: the source's log is damaged: {error}")


def refused(one: Mirrored, error: MillraceError) -> Stop:
    """Returns the stop of a partition that the target does not take."""
    return Stop(StopKind.REFUSED, f"{one}: the target refuses to take records: {error}")


def is_refusal(error: MillraceError) -> bool:
    """Returns whether the target will refuse the same batch again, too."""
    if isinstance(error, BrokerError):
        return error.broker_code in REFUSING_CODES
    is_of_records = isinstance(error, RecordError) and not is_retriable(error)
    return is_of_records or isinstance(error, PolicyViolationError)


def is_denial(error: MillraceError) -> bool:
    """Returns whether the mirror lacks a right on a topic: it is tried again, since somebody may give it the right."""
    return isinstance(error, BrokerError) and error.broker_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
