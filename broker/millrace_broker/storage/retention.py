"""Which segments may go: pure choices over what is known of each segment, by policies that a log names (docs/logs.md).

Only whole segments go, the oldest first, up to the first one that must stay. A policy returns the reason for which one
segment may go, or None; the reason of one policy is enough.

`millrace.delete.policies` lists the policies by name (docs/configuration.md, "Delete policies"). A policy is an entry
point of the group `millrace.delete_policies` of any installed package: what it names is called with a log's settings
and returns a `RetentionPolicy`. A name without such an entry point is refused where it is set. A policy that fails, or
has been removed since, is reported in the log; it deletes nothing, and the others go on.

`time` and `size` are declared in pyproject.toml like any other. They are known here too, as nearly every log names them
and reading what all installed packages declare would slow down the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pkgutil import resolve_name
from typing import Protocol

from millrace.errors import InvalidConfigError
from millrace_broker.storage.config import UNLIMITED, LogConfig

logger = logging.getLogger(__name__)

GROUP = "millrace.delete_policies"
PROPERTY = "millrace.delete.policies"
BUILT_IN: Mapping[str, str] = {
    "time": "millrace_broker.storage.retention:ByTime",
    "size": "millrace_broker.storage.retention:BySize",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """The facts about a segment by which a retention policy decides. `next_offset` is the offset after its last one.

    `max_timestamp` is the largest timestamp of its records. Where no record has one, as with clients of Kafka 0.8 and
    0.9, it is the time at which the file was last written, which compaction and a move to another folder keep. It is
    not less than that where a part is damaged, as the damage may be in a record that is younger than all others.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The facts about a log for a retention policy; `size_bytes` counts the segment in question and all newer ones."""

    size_bytes: int
    log_start_offset: int
    now_ms: int


class RetentionPolicy(Protocol):
    """One rule by which segments are deleted, made from the log's settings for each pass over the log."""

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns why the segment may go; None if this rule lets it stay."""
        ...


MakePolicy = Callable[[LogConfig], RetentionPolicy]


@dataclass(frozen=True, slots=True)
class ByLogStartOffset:
    """Lets a segment go if all of its records are below the log start offset."""

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns `below the log start offset`; None if the segment stays."""
        return "below the log start offset" if segment.next_offset <= log.log_start_offset else None


class ByTime:
    """Lets a segment go if its `max_timestamp` is more than `retention_ms` ago."""

    def __init__(self, config: LogConfig) -> None:
        self.retention_ms = config.retention_ms

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns `older than retention.ms`; None if the segment stays."""
        known = self.retention_ms != UNLIMITED and segment.max_timestamp >= 0
        return "older than retention.ms" if known and log.now_ms - segment.max_timestamp > self.retention_ms else None


class BySize:
    """Lets a segment go if the log without that segment still has `retention_bytes` or more."""

    def __init__(self, config: LogConfig) -> None:
        self.retention_bytes = config.retention_bytes

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns `above retention.bytes`; None if the segment stays."""
        limited = self.retention_bytes != UNLIMITED
        return (
            "above retention.bytes" if limited and log.size_bytes - segment.size_bytes >= self.retention_bytes else None
        )


def deletable(
    segments: Sequence[SegmentFacts],
    policies: Sequence[RetentionPolicy],
    *,
    log_start_offset: int,
    up_to_offset: int,
    now_ms: int,
) -> list[str]:
    """Returns why each of the oldest segments may be deleted, up to the first that must stay: one reason per segment.

    Nothing at or above `up_to_offset`, the high watermark, is deleted, nor the last segment while it is empty. An older
    one is empty where its file was lost; it must not keep all that is newer.
    """
    reasons: list[str] = []
    size_bytes = sum(segment.size_bytes for segment in segments)
    for segment in segments:
        log = LogFacts(size_bytes=size_bytes, log_start_offset=log_start_offset, now_ms=now_ms)
        found = next(filter(None, (policy.reason(segment, log) for policy in policies)), None)
        is_last_and_empty = segment is segments[-1] and not segment.size_bytes
        if found is None or segment.next_offset > up_to_offset or is_last_and_empty:
            break
        reasons.append(found)
        size_bytes -= segment.size_bytes
    return reasons


def policies_of(config: LogConfig) -> tuple[RetentionPolicy, ...]:
    """Returns the policies to apply: `ByLogStartOffset` and, with `cleanup.policy=delete`, those that are named."""
    named = config.delete_policies if config.is_deleted else ()
    return ByLogStartOffset(), *(_Guarded(name, config) for name in named)


def check_policies(config: LogConfig) -> None:
    """Raises InvalidConfigError where a policy that the settings name is not installed or its constructor fails."""
    _find.cache_clear()  # a package may have been installed meanwhile
    for name in config.delete_policies:
        _make(name, config)


def _make(name: str, config: LogConfig) -> RetentionPolicy:
    found = _find(name)
    if isinstance(found, InvalidConfigError):
        raise found
    try:
        return found(config)
    except Exception as error:
        raise InvalidConfigError(f"{PROPERTY}={name}: Invalid value, the policy can't be made: {error}") from error


@lru_cache(maxsize=100)
def _find(name: str) -> MakePolicy | InvalidConfigError:
    """Returns the constructor of the policy with this name, or the error why there is none; both are cached."""
    value = BUILT_IN.get(name) or _installed().get(name)
    if value is None:
        return InvalidConfigError(
            f"{PROPERTY}={name}: Invalid value, no installed package has an entry point of this name in {GROUP}"
        )
    try:
        make: MakePolicy = resolve_name(value)
    except Exception as error:  # noqa: BLE001 -- another package's module may raise anything
        return InvalidConfigError(f"{PROPERTY}={name}: Invalid value, {value} can't be loaded: {error}")
    return make


def _installed() -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 -- slow to import, and seldom needed

    return {one.name: one.value for one in entry_points(group=GROUP)}


class _Guarded:
    """A named policy that deletes nothing, until the next pass, once it has raised an error."""

    def __init__(self, name: str, config: LogConfig) -> None:
        self._name = name
        self._policy: RetentionPolicy | None = None
        try:
            self._policy = _make(name, config)
        except InvalidConfigError as error:
            logger.error("delete policy %s deletes nothing: %s", name, error)  # noqa: TRY400 -- the error says all

    def reason(self, segment: SegmentFacts, log: LogFacts) -> str | None:
        """Returns the reason that the policy gives; None where it gives none or fails."""
        if self._policy is None:
            return None
        try:
            return _checked(self._policy.reason(segment, log))
        except Exception:
            logger.exception("delete policy %s fails, and deletes nothing", self._name)
            self._policy = None
            return None


def _checked(reason: object) -> str | None:
    if reason is None or isinstance(reason, str):
        return reason
    raise TypeError(f"{reason!r} is not a reason: str or None is expected")
