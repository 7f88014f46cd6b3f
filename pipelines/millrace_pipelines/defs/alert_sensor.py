"""The sensor that tells a webhook of what failed, and how it reads the events of an instance that may be told.

A cluster has it where `webhook` or MILLRACE_WEBHOOK names an address (docs/dagster.md). A tick sends at most
MAX_ALERTS, for no longer than SENDING_S, as Dagster ends ticks after a minute; the next tick sends the rest. An alert
that the webhook does not take is sent again by the next tick, before the alerts that follow it. If it is the first
alert of its tick, the tick fails. If others were sent before it, the tick must not fail: Dagster forgets the cursor of
a failed tick, and they would be sent again.

Failed runs are told, and checks that begin to fail, fail for another reason, or pass again. Two failures of a check are
the same if they have the same severity and description. The descriptions of freshness and lag have numbers that grow
from one evaluation to the next, which are not compared: a table that stays late is reported once.

The request is JSON with a `text`, as Slack and what imitates it show it, and the alert's fields; what it lacks is null.

{"text": "millrace: the check freshness of millrace/table/flights fails (WARN): …", "kind": "check_failed",
 "cluster": "millrace", "asset": "millrace/table/flights", "check": "freshness", "job": null, "run_id": "…",
 "url": "http://…/runs/…", "severity": "WARN", "description": "…"}

The event log numbers all events, so that one number says how far a look came. A run belongs to the cluster if one of
its assets or checked assets does; a run without assets does if its tag `millrace/cluster` names the cluster.
"""

from __future__ import annotations

import html
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import dagster as dg
from dagster import DagsterEventType
from dagster_shared.error import SerializableErrorInfo

from millrace.errors import PlatformError
from millrace.json_values import Json
from millrace_pipelines.declaration.attributes import Check, webhook_url
from millrace_pipelines.declaration.cluster import CLUSTER_TAG, WEBHOOK, DeclaredCluster, named
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.ticks import counted, failing_in_words, pack_cursor, unpack_cursor
from millrace_pipelines.http import ServiceUnreachableError, notify

NUMBER = re.compile(r"\d+")
MEASURED = frozenset({Check.FRESHNESS.value, Check.LAG.value})
TIMEOUT_S = 10.0
SHOWN_CHARACTERS = 2000


class Kind(StrEnum):
    """The kinds of alerts: a run failed, a check failed, a check passes again."""

    RUN_FAILED = "run_failed"
    CHECK_FAILED = "check_failed"
    CHECK_RECOVERED = "check_recovered"


class Severity(StrEnum):
    """The severity of an alert: ERROR and WARN as Dagster has them for checks, INFO for a check that passes again."""

    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A failed run or a check as an alert reports it; a field that does not apply to it is None.

    `asset` is a key such as `millrace/table/flights`; `run_id` is "" for the result of a check that no run made.
    """

    kind: Kind
    severity: Severity
    description: str
    run_id: str
    asset: str | None
    check: str | None = None
    job: str | None = None


class Event(NamedTuple):
    """A failed run, or the result of a check: its number among all events of the instance, and what an alert says."""

    position: int
    alert: Alert


class Seen(NamedTuple):
    """The events that were reported so far, as the sensor's cursor keeps them.

    Attributes:
        position: The number of the last event that was looked at.
        failing: For each failing check, by `ASSET:CHECK`, the CRC-32 of the severity and text that were reported last.
    """

    position: int
    failing: Mapping[str, str]


def alert_of(event: Event, seen: Seen) -> tuple[Alert | None, Seen]:
    """Returns the alert of an event, None where it has been reported already, and `seen` with this event added."""
    alert = event.alert
    if alert.kind is Kind.RUN_FAILED:
        return alert, seen._replace(position=event.position)
    key = f"{alert.asset}:{alert.check}"
    before = seen.failing.get(key)
    digest = None if alert.kind is Kind.CHECK_RECOVERED else _digest(alert)
    others = {each: known for each, known in seen.failing.items() if each != key}
    after = Seen(event.position, others if digest is None else {**others, key: digest})
    return (None if digest == before else alert), after


def _digest(failed: Alert) -> str:
    words = NUMBER.sub("", failed.description) if failed.check in MEASURED else failed.description
    return f"{zlib.crc32(f'{failed.severity} {words}'.encode()):08x}"


def cursor_of(seen: Seen) -> str:
    """Returns the sensor's cursor, a text that `parse_cursor` reads back."""
    return pack_cursor({"position": seen.position, "failing": dict(seen.failing)})


def parse_cursor(text: str | None) -> Seen | None:
    """Returns what a cursor of `cursor_of` keeps; None without a cursor, and for a text that can't be read."""
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
        """Sends an alert; raises ServiceUnreachableError where the webhook does not take it within TIMEOUT_S."""
        body = message(alert, self.cluster, self.dagster_url)
        notify(self.url, body, timeout_s=TIMEOUT_S, advice="the field webhook or MILLRACE_WEBHOOK names it")


def webhook_of(declared: str | None, environment: Mapping[str, str]) -> str | None:
    """Returns the URL of the webhook, the declared one or that of MILLRACE_WEBHOOK; None where neither is given.

    Raises PlatformError where the variable has no valid URL.
    """
    given = environment.get(WEBHOOK)
    if declared is not None or not given:
        return declared
    try:
        return webhook_url(given)
    except ValueError as error:
        raise PlatformError(f"{WEBHOOK}: {error}") from error


def message(alert: Alert, cluster: str, dagster_url: str) -> dict[str, Json]:
    """Returns the JSON body that reports an alert to the webhook; a long description is cut to SHOWN_CHARACTERS."""
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


EVENTS_AT_ONCE = 1000
TYPES = (DagsterEventType.ASSET_CHECK_EVALUATION, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED)
# Only this message marks a run that Dagster's run monitoring cancels. If that run fails then, its failure is reported.
TOO_LONG = "Canceling due to exceeding maximum runtime"
JOB_OF_SCHEDULE = "__anonymous_asset_job_"
MAX_ALERTS = 20
SENDING_S = 30.0


class Look(NamedTuple):
    """Events of one cluster, oldest first, and the number of the last event up to which the instance was read."""

    events: Iterator[Event]
    end: int


def newest_position(instance: dg.DagsterInstance) -> int:
    """Returns the number of the newest event that the instance has; 0 where it has none."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def look_after(instance: dg.DagsterInstance, cluster: str, position: int) -> Look:
    """Returns the events after the one with the number `position`, at most EVENTS_AT_ONCE of each type.

    Where the instance's events were wiped, so that their numbers begin again, it starts at the newest event.
    """
    begin = min(position, newest_position(instance))
    found: dict[int, dg.EventLogEntry] = {}
    cut_off_at: list[int] = []
    for of_type in TYPES:
        entries = instance.event_log_storage.get_logs_for_all_runs_by_log_id(
            after_cursor=begin, dagster_event_type=of_type, limit=EVENTS_AT_ONCE
        )
        found |= entries
        if len(entries) == EVENTS_AT_ONCE:
            cut_off_at.append(max(entries))
    end = min(cut_off_at, default=max(found, default=begin))
    read = [(at, found[at]) for at in sorted(found) if at <= end]
    return Look((event for at, entry in read if (event := _event(instance, cluster, at, entry)) is not None), end)


def _event(instance: dg.DagsterInstance, cluster: str, at: int, entry: dg.EventLogEntry) -> Event | None:
    if entry.dagster_event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
        return _evaluation(cluster, at, entry)
    return _failed_run(instance, cluster, at, entry)


def _evaluation(cluster: str, at: int, entry: dg.EventLogEntry) -> Event | None:
    made = entry.get_dagster_event().asset_check_evaluation_data
    if made.asset_key.path[0] != cluster:
        return None
    alert = Alert(
        kind=Kind.CHECK_RECOVERED if made.passed else Kind.CHECK_FAILED,
        severity=Severity.INFO if made.passed else Severity(made.severity.value),
        description=made.description or "",
        run_id=entry.run_id,
        asset=made.asset_key.to_user_string(),
        check=made.check_name,
    )
    return Event(at, alert)


def _failed_run(instance: dg.DagsterInstance, cluster: str, at: int, entry: dg.EventLogEntry) -> Event | None:
    run = instance.get_run_by_id(entry.run_id)
    if run is None:
        return None
    assets, checked = _assets(instance, run.run_id)
    touched = assets | checked
    clusters = {key.path[0] for key in touched} if touched else {run.tags.get(CLUSTER_TAG)}
    description = _why(instance, run, entry) if cluster in clusters else None
    if description is None:
        return None
    asset = next(iter(assets)).to_user_string() if len(assets) == 1 else None
    alert = Alert(
        kind=Kind.RUN_FAILED,
        severity=Severity.ERROR,
        description=description,
        run_id=run.run_id,
        asset=asset,
        job=run.job_name.removeprefix(JOB_OF_SCHEDULE),
    )
    return Event(at, alert)


def _assets(instance: dg.DagsterInstance, run_id: str) -> tuple[set[dg.AssetKey], set[dg.AssetKey]]:
    """Returns the keys of the assets that a run was to materialize, and of those whose checks it was to run."""
    planned = {DagsterEventType.ASSET_MATERIALIZATION_PLANNED, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED}
    assets, checked = set(), set()
    for event in _events_of(instance, run_id, planned):
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            assets.add(event.asset_materialization_planned_data.asset_key)
        else:
            checked.add(event.asset_check_planned_data.asset_key)
    return assets, checked


def _why(instance: dg.DagsterInstance, run: dg.DagsterRun, entry: dg.EventLogEntry) -> str | None:
    """Returns why a run failed, in words; None where a person cancelled it, or another event reports the failure."""
    ended = entry.get_dagster_event()
    if ended.event_type is DagsterEventType.RUN_CANCELED:
        messages = [event.message or "" for event in _events_of(instance, run.run_id, {DagsterEventType.RUN_CANCELING})]
        is_told_as_failure = run.status is dg.DagsterRunStatus.FAILURE
        return next((each for each in messages if each.startswith(TOO_LONG) and not is_told_as_failure), None)
    if ended.event_specific_data is None:
        return ended.message or ""
    steps = [_step_sentence(event) for event in _events_of(instance, run.run_id, {DagsterEventType.STEP_FAILURE})]
    return "\n".join(steps) or _sentence(ended.job_failure_data.error) or ended.message or ""


def _step_sentence(event: dg.DagsterEvent) -> str:
    failure = event.step_failure_data
    in_words = failure.user_failure_data.description if failure.user_failure_data is not None else None
    return in_words or _sentence(failure.error) or event.message or ""


def _sentence(error: SerializableErrorInfo | None) -> str:
    """Returns the message of the first error in a chain of Dagster's errors, the cause of the others."""
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else error.message.strip()


def _events_of(instance: dg.DagsterInstance, run_id: str, types: set[DagsterEventType]) -> Iterator[dg.DagsterEvent]:
    for record in instance.get_records_for_run(run_id, of_type=types).records:
        yield record.event_log_entry.get_dagster_event()


class SendResult(NamedTuple):
    """The outcome of one tick: how many alerts were sent, what is reported so far, and why others wait, "" for none."""

    alerts: int
    seen: Seen
    rest: str


def alerts_sensor(cluster: DeclaredCluster, declared: str | None) -> dg.SensorDefinition:
    """Returns the sensor that sends alerts to the webhook, of events after its first tick; it runs by default.

    Args:
        cluster: The cluster.
        declared: The webhook; None for that of the environment.
    """

    @dg.sensor(
        name=named("alerts", cluster.name),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Tells the webhook of runs and checks that fail, and of checks that pass again.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Reads the events since the last tick, and sends their alerts."""
        seen = parse_cursor(context.cursor)
        with failing_in_words():
            url = webhook_of(declared, os.environ)
        if seen is None:
            return _said("alerts begin with what happens from now on", Seen(newest_position(context.instance), {}))
        if url is None:
            return _said("no webhook is named", seen)
        webhook = Webhook(url=url, cluster=cluster.name, dagster_url=resource_of(context, cluster.name).dagster_url)
        with failing_in_words():
            told = tell(look_after(context.instance, cluster.name, seen.position), seen, webhook.send, time.monotonic)
        return _said(f"{counted(told.alerts, 'alert')} sent{told.rest}", told.seen)

    return alerts


def tell(look: Look, seen: Seen, send: Callable[[Alert], None], clock: Callable[[], float]) -> SendResult:
    """Sends the alerts of new events, and returns the outcome.

    Raises ServiceUnreachableError where the webhook does not take the first alert; a later one waits for the next tick.

    Args:
        look: The events since the last tick.
        seen: What was reported before.
        send: Sends one alert.
        clock: Returns the seconds of a clock.
    """
    sent, end = 0, clock() + SENDING_S
    for event in look.events:
        alert, after = alert_of(event, seen)
        if alert is not None:
            if sent == MAX_ALERTS or clock() > end:
                return SendResult(sent, seen, "; the next tick sends the rest")
            try:
                send(alert)
            except ServiceUnreachableError as error:
                if not sent:
                    raise
                return SendResult(sent, seen, f"; the next tick sends the rest, as the next one was not taken: {error}")
            sent += 1
        seen = after
    return SendResult(sent, seen._replace(position=look.end), "")


def _said(sentence: str, seen: Seen) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=dg.SkipReason(sentence), cursor=cursor_of(seen))
