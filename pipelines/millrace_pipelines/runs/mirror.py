"""The process in which a run of Dagster mirrors: `python -m millrace_pipelines.runs.mirror`, under Dagster's Pipes.

It does what `millrace mirror --once` does, for some of the sources of a mirror, and for a bounded time. It is given its
work as the extras of Pipes, and tells at the end, by one custom message, what it has mirrored of each topic.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dagster_pipes import open_dagster_pipes
from pydantic import TypeAdapter

from millrace.clock import SystemClock
from millrace.errors import MillraceError
from millrace_pipelines.mirror.own_target import settings_into
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings


@dataclass(frozen=True, kw_only=True)
class MirrorWork:
    """What is to be mirrored.

    Attributes:
        config: The path of the mirror's settings.
        bootstrap: The target's brokers, unless the settings name them.
        client_config: The file of the target's client properties; None for none.
        sources: The names of the sources.
        accepted: The options that go on where a topic would otherwise stop.
        max_seconds: After how long the run ends although there is more.
    """

    config: str
    bootstrap: str
    client_config: str | None
    sources: tuple[str, ...]
    accepted: Mapping[str, bool] = field(default_factory=dict)
    max_seconds: float

    def settings(self) -> MirrorSettings:
        """Returns the settings, with these sources alone; raises InvalidConfigError."""
        whole = settings_into(self.config, self.bootstrap, self.client_config, self.accepted)
        return replace(whole, sources=tuple(one for one in whole.sources if one.name in self.sources))


@dataclass(kw_only=True)
class MirroredHere:
    """What a run has mirrored of a topic, and why parts of it have stopped."""

    records: int = 0
    size_bytes: int = 0
    newest_ms: int = -1
    stopped: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MirrorReport:
    """What a run has mirrored: by topic, as `NAME/TOPIC`; and the error that ended it, if one did."""

    topics: Mapping[str, MirroredHere] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None


WORK = TypeAdapter(MirrorWork)
REPORT = TypeAdapter(MirrorReport)


def mirror_once(work: MirrorWork, tell: Callable[[str], None]) -> MirrorReport:
    """Mirrors what the sources have now, and returns what that was; an error of the settings is in the report."""
    clock = SystemClock()
    begin_s = clock.monotonic_s()
    try:
        with MirrorService(work.settings(), tell=tell, clock=clock) as service:

            def look() -> None:
                if clock.monotonic_s() - begin_s > work.max_seconds:
                    service.stop()

            service.run(once=True, looks=look)
            return MirrorReport(topics=_topics(service), seconds=clock.monotonic_s() - begin_s)
    except MillraceError as error:
        return MirrorReport(error=str(error))


def _topics(service: MirrorService) -> dict[str, MirroredHere]:
    found: dict[str, MirroredHere] = {}
    for one, line in service.counters.read().items():
        here = found.setdefault(f"{one.source}/{one.what.topic}", MirroredHere())
        here.records += line.records
        here.size_bytes += line.size_bytes
        here.newest_ms = max(here.newest_ms, line.newest_ms)
        if line.stop is not None:
            here.stopped.append(line.stop.reason)
    return found


def main() -> None:
    """Does the work that the Pipes context brings, and sends the report."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process has inherited
    with open_dagster_pipes() as context, suppress(KeyboardInterrupt):
        report = mirror_once(WORK.validate_python(context.extras), context.log.warning)
        context.report_custom_message(REPORT.dump_python(report, mode="json"))


if __name__ == "__main__":
    main()
