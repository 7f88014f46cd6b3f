"""Alerts: which events are told to a webhook, and the request that tells one.

Failed runs are told, and checks that begin to fail, fail for another reason, or pass again. Two failures of a check are
the same if they have the same severity and description. The descriptions of freshness and lag have numbers that grow
from one evaluation to the next, which are not compared: a table that stays late is reported once.

The request is JSON with a `text`, as Slack and what imitates it show it, and the alert's fields; what it lacks is null.

{"text": "millrace: the check freshness of millrace/table/flights fails (WARN): …", "kind": "check_failed",
 "cluster": "millrace", "asset": "millrace/table/flights", "check": "freshness", "job": null, "run_id": "…",
 "url": "http://…/runs/…", "severity": "WARN", "description": "…"}
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from millrace.errors import PlatformError
from millrace.json_values import Json
from millrace_pipelines.declaration.attributes import webhook_url
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.declaration.state import WEBHOOK
from millrace_pipelines.defs.ticks import pack_cursor, unpack_cursor
from millrace_pipelines.http import notify

NUMBER = re.compile(r"\d+")
MEASURED = frozenset({Check.FRESHNESS.value, Check.LAG.value})
TIMEOUT_S = 10.0
SHOWN_CHARACTERS = 2000


class Kind(StrEnum):
    """What an alert is about."""

    RUN_FAILED = "run_failed"
    CHECK_FAILED = "check_failed"
    CHECK_RECOVERED = "check_recovered"


class Severity(StrEnum):
    """How bad it is: ERROR and WARN as Dagster has them for checks, INFO for what is well again."""

    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A check that was made.

    Attributes:
        position: Where it stands among the events of the instance.
        asset: The asset's key, as `millrace/table/flights`.
        check: The check's name.
        passed: Whether it passed.
        severity: How bad a failure is.
        description: The sentence of the result.
        run_id: The run that made it; "" for a result that no run made.
    """

    position: int
    asset: str
    check: str
    passed: bool
    severity: Severity
    description: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run that failed, or that was cancelled as it took too long.

    Attributes:
        position: Where its end stands among the events of the instance.
        run_id: The run.
        job: The name of its job.
        asset: The key of its only asset; None where it has more, or none.
        description: Why it failed.
    """

    position: int
    run_id: str
    job: str
    asset: str | None
    description: str


Event: TypeAlias = Evaluation | FailedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What is reported of an event; a field that the event does not have is None."""

    kind: Kind
    severity: Severity
    description: str
    run_id: str
    asset: str | None
    check: str | None = None
    job: str | None = None


class Seen(NamedTuple):
    """What was reported so far.

    Attributes:
        position: The last event that was looked at.
        failing: By asset and check, a digest of the failure that was reported last; checks that pass are left out.
    """

    position: int
    failing: Mapping[str, str]


def alert_of(event: Event, seen: Seen) -> tuple[Alert | None, Seen]:
    """Returns the alert of an event, None where nothing is to be reported, and what was reported after that."""
    if isinstance(event, FailedRun):
        return _run_alert(event), seen._replace(position=event.position)
    key = f"{event.asset}:{event.check}"
    before = seen.failing.get(key)
    digest = None if event.passed else _digest(event)
    others = {each: known for each, known in seen.failing.items() if each != key}
    after = Seen(event.position, others if digest is None else {**others, key: digest})
    return (None if digest == before else _check_alert(event)), after


def _run_alert(run: FailedRun) -> Alert:
    return Alert(
        kind=Kind.RUN_FAILED,
        severity=Severity.ERROR,
        description=run.description,
        run_id=run.run_id,
        asset=run.asset,
        job=run.job,
    )


def _check_alert(evaluation: Evaluation) -> Alert:
    return Alert(
        kind=Kind.CHECK_RECOVERED if evaluation.passed else Kind.CHECK_FAILED,
        severity=Severity.INFO if evaluation.passed else evaluation.severity,
        description=evaluation.description,
        run_id=evaluation.run_id,
        asset=evaluation.asset,
        check=evaluation.check,
    )


def _digest(failed: Evaluation) -> str:
    words = NUMBER.sub("", failed.description) if failed.check in MEASURED else failed.description
    return f"{zlib.crc32(f'{failed.severity} {words}'.encode()):08x}"


def cursor_of(seen: Seen) -> str:
    """Returns the cursor that says what was reported."""
    return pack_cursor({"position": seen.position, "failing": dict(seen.failing)})


def parse_cursor(text: str | None) -> Seen | None:
    """Returns what a cursor says; None without a cursor, and for a text that can't be read."""
    value: Json = unpack_cursor(text)
    match value:
        case {"position": int(position), "failing": dict(failing)}:
            return Seen(position, {key: str(digest) for key, digest in failing.items()})
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A service that takes alerts.

    Attributes:
        url: Its address, which may be a secret: nothing shows more of it than its host.
        cluster: The name of the cluster, which messages begin with.
        dagster_url: The webserver, for links to runs; "" for none.
    """

    url: str = field(repr=False)
    cluster: str
    dagster_url: str

    def send(self, alert: Alert) -> None:
        """Sends an alert; raises ServiceUnreachableError where it is not taken in TIMEOUT_S."""
        body = message(alert, self.cluster, self.dagster_url)
        notify(self.url, body, timeout_s=TIMEOUT_S, advice="the field webhook or MILLRACE_WEBHOOK names it")


def webhook_of(declared: str | None, environment: Mapping[str, str]) -> str | None:
    """Returns the address that alerts are sent to; None for none, PlatformError where the variable has no URL."""
    given = environment.get(WEBHOOK)
    if declared is not None or not given:
        return declared
    try:
        return webhook_url(given)
    except ValueError as error:
        raise PlatformError(f"{WEBHOOK}: {error}") from error


def message(alert: Alert, cluster: str, dagster_url: str) -> dict[str, Json]:
    """Returns the JSON that is sent; a long description is cut to SHOWN_CHARACTERS."""
    url = f"{dagster_url.rstrip('/')}/runs/{alert.run_id}" if dagster_url and alert.run_id else None
    description = alert.description
    if len(description) > SHOWN_CHARACTERS:
        description = f"{description[:SHOWN_CHARACTERS]}…"
    sentence = f"{cluster}: {_happened(alert)}: {description}"
    return {
        # Slack reads <…> as a link or as a call to all people of a channel.
        "text": html.escape(sentence if url is None else f"{sentence}\n{url}", quote=False),
        "kind": alert.kind.value,
        "cluster": cluster,
        "asset": alert.asset,
        "check": alert.check,
        "job": alert.job,
        "run_id": alert.run_id or None,
        "url": url,
        "severity": alert.severity.value,
        "description": description,
    }


def _happened(alert: Alert) -> str:
    match alert.kind:
        case Kind.RUN_FAILED:
            return f"a run of {alert.asset or alert.job} failed"
        case Kind.CHECK_FAILED:
            return f"the check {alert.check} of {alert.asset} fails ({alert.severity})"
        case Kind.CHECK_RECOVERED:
            return f"the check {alert.check} of {alert.asset} passes again"
