"""Delete policies by name, as `millrace.delete.policies` lists them (docs/configuration.md, "Delete policies").

A policy is an entry point of the group `millrace.delete_policies` of any installed package: what it names is called
with a log's settings and returns a `RetentionPolicy`. A name without such an entry point is refused where it is set. A
policy that fails, or has been removed since, is reported in the log; it deletes nothing, and the others go on.

`time` and `size` are declared in pyproject.toml like any other. They are known here too, as nearly every log names them
and reading what all installed packages declare would slow down the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pkgutil import resolve_name

from millrace.errors import InvalidConfigError
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.retention import ByLogStartOffset, LogFacts, RetentionPolicy, SegmentFacts, deletable

logger = logging.getLogger(__name__)

GROUP = "millrace.delete_policies"
PROPERTY = "millrace.delete.policies"
BUILT_IN: Mapping[str, str] = {
    "time": "millrace_broker.storage.retention:ByTime",
    "size": "millrace_broker.storage.retention:BySize",
}

MakePolicy = Callable[[LogConfig], RetentionPolicy]


def policies_of(config: LogConfig) -> tuple[RetentionPolicy, ...]:
    """Returns the policies that a log's settings name; a log that is only compacted has `ByLogStartOffset` alone."""
    named = config.delete_policies if config.is_deleted else ()
    return ByLogStartOffset(), *(_Guarded(name, config) for name in named)


def deletable_of(
    config: LogConfig, segments: Sequence[SegmentFacts], *, log_start_offset: int, up_to_offset: int, now_ms: int
) -> list[str]:
    """Returns what `deletable` does by the policies that a log's settings ask for."""
    policies = policies_of(config)
    return deletable(segments, policies, log_start_offset=log_start_offset, up_to_offset=up_to_offset, now_ms=now_ms)


def check_policies(config: LogConfig) -> None:
    """Raises InvalidConfigError where a policy that the settings name is not there, or can't be made."""
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
    """Returns what makes the policy, or the error that says why nothing does; both are remembered."""
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
    """A policy that, once it has failed, lets no more segments of this log go until the next pass."""

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
