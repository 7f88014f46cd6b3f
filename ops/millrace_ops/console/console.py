"""What pages are made from: the settings, clusters, the newest overview, audits, and the decoder of values."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from millrace.client import Cluster
from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.extras import require
from millrace.fs import FileSystem
from millrace.security.client_config import read_client_security
from millrace_ops.console.dagster import Dagster
from millrace_ops.console.related import GroupsOfTopics, TablesOfTopics
from millrace_ops.console.watch import Clusters, Watch
from millrace_ops.record_values.shown import Decoder

logger = logging.getLogger(__name__)

MAX_KEPT = 100


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit of a table; `findings` is None until it has ended. `failure` says why it failed, "" where it did not."""

    location: str
    started_ms: int
    ended_ms: int | None = None
    findings: tuple[str, ...] | None = None
    failure: str = ""


class Audits:
    """The audits of tables that users start in the console; one runs at a time."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._audits: dict[str, Audit] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-audit")

    def of(self, location: str) -> Audit | None:
        """Returns the last audit of the table at a location; None where there was none."""
        with self._lock:
            return self._audits.get(location)

    def under_way(self) -> list[Audit]:
        """Returns the audits that wait or run."""
        with self._lock:
            return [one for one in self._audits.values() if one.ended_ms is None]

    def start(self, location: str) -> None:
        """Begins an audit of a table, unless one of this table waits or runs."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of the console's process.

    Attributes:
        socket: The path of the Unix socket to serve at.
        bootstrap: `HOST:PORT` of the broker.
        client_config: The file of client properties; "" for a connection without security.
        has_login: Whether the broker's endpoint has a token, and so sessions that can be ended.
        may_change: Whether pages offer what changes something.
        warehouse: The folder or bucket of tables; "" for none.
        schema_registry: The address or folder of the schema registry; "" for none.
        dagster_url: The address of Dagster's webserver; "" for none.
        dagster_cluster: The first part of the keys of this cluster's assets in Dagster.
        log_format: The form of the log, `text` or `json`.
    """

    socket: str
    bootstrap: str
    client_config: str = ""
    has_login: bool = False
    may_change: bool = False
    warehouse: str = ""
    schema_registry: str = ""
    dagster_url: str = ""
    dagster_cluster: str = ""
    log_format: str = "text"

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Returns the settings in a line of JSON; raises TypeError for one with other fields."""
        return cls(**json.loads(line))


CLIENT_ID = "millrace-console"
TIMEOUT_S = 10.0


class Console:
    """The settings and clients that all pages share; no cluster is asked before a page needs it."""

    def __init__(self, settings: ConsoleSettings, fs: FileSystem, clock: Clock) -> None:
        self.settings = settings
        self.fs = fs
        self.clock = clock
        self._security = read_client_security(settings.client_config, environment={})
        self.clusters = Clusters(self._connect)
        self.watch = Watch(self.clusters, clock)
        self.audits = Audits(settings, clock)
        self.groups_of_topics = GroupsOfTopics(clock)
        self.tables_of_topics = TablesOfTopics()
        self.dagster = Dagster(settings.dagster_url, settings.dagster_cluster, clock)

    @cached_property
    def decoder(self) -> Decoder | None:
        """Returns the decoder of values by the schema registry, None without one; raises SetupError or SchemaError."""
        if not self.settings.schema_registry:
            return None
        require("decoding by a schema registry", "tables")

        from millrace_ops.record_values.by_schema import RememberingDecoder, SchemaValues  # noqa: PLC0415

        return RememberingDecoder(SchemaValues(self.settings.schema_registry), self.clock)

    def _connect(self) -> Cluster:
        return Cluster(
            self.settings.bootstrap,
            client_id=CLIENT_ID,
            timeout_s=TIMEOUT_S,
            clock=self.clock,
            security=self._security,
        )
