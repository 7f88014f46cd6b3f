"""Audits of tables that pages have asked for: one runs at a time, and the last result of each table is kept."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace_ops.console.settings import ConsoleSettings

logger = logging.getLogger(__name__)

MAX_KEPT = 100


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit; `findings` is None while it waits or runs, and where it has failed, which `failure` says."""

    location: str
    started_ms: int
    ended_ms: int | None = None
    findings: tuple[str, ...] | None = None
    failure: str = ""


class Audits:
    """The audits that were asked for in the console, one at a time."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._audits: dict[str, Audit] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-audit")

    def of(self, location: str) -> Audit | None:
        """Returns the last audit of a table."""
        with self._lock:
            return self._audits.get(location)

    def under_way(self) -> list[Audit]:
        """Returns the audits that wait or run."""
        with self._lock:
            return [one for one in self._audits.values() if one.ended_ms is None]

    def start(self, location: str) -> None:
        """Begins an audit, unless one of this table is under way."""
        with self._lock:
            last = self._audits.pop(location, None)
            is_under_way = last is not None and last.ended_ms is None
            self._audits[location] = last if is_under_way and last else Audit(location, self._clock.now_ms())
            for ended in [one for one, audit in self._audits.items() if audit.ended_ms is not None][:-MAX_KEPT]:
                del self._audits[ended]
        if not is_under_way:
            self._thread.submit(self._run, location)

    def _run(self, location: str) -> None:
        from millrace_pipelines.warehouse.completeness.audit import audit  # noqa: PLC0415  # loaded once it is used

        findings, failure = None, ""
        try:
            client_config = self._settings.client_config or None
            findings = tuple(audit(location, bootstrap=self._settings.bootstrap, client_config=client_config))
        except (MillraceError, OSError) as error:
            failure = str(error)
        except Exception as error:  # or the audit would be under way for ever
            logger.exception("the audit of %s failed", location)
            failure = repr(error)
        with self._lock:
            ended = replace(self._audits[location], ended_ms=self._clock.now_ms(), findings=findings, failure=failure)
            self._audits[location] = ended
