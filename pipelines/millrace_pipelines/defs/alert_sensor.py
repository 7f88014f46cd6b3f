"""The sensor that tells a webhook of what failed, and how it reads the events of an instance that may be told.

A cluster has it where `webhook` or MILLRACE_WEBHOOK names an address (docs/dagster.md). A tick sends at most
MAX_ALERTS, for no longer than SENDING_S, as Dagster ends ticks after a minute; the next tick sends the rest. An alert
that the webhook does not take is sent again by the next tick, before the alerts that follow it. If it is the first
alert of its tick, the tick fails. If others were sent before it, the tick must not fail: Dagster forgets the cursor of
a failed tick, and they would be sent again.

The event log numbers all events, so that one number says how far a look came. A run belongs to the cluster if one of
its assets or checked assets does; a run without assets does if its tag `millrace/cluster` names the cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import dagster as dg
from dagster import DagsterEventType
from dagster_shared.error import SerializableErrorInfo

from millrace_pipelines.declaration.cluster import CLUSTER_TAG, DeclaredCluster
from millrace_pipelines.defs.alerts import (
    Alert,
    Evaluation,
    Event,
    FailedRun,
    Seen,
    Severity,
    Webhook,
    alert_of,
    cursor_of,
    parse_cursor,
    webhook_of,
)
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.ticks import counted, failing_in_words
from millrace_pipelines.http import ServiceUnreachableError

EVENTS_AT_ONCE = 1000
TYPES = (DagsterEventType.ASSET_CHECK_EVALUATION, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED)
# Only this message marks a run that Dagster's run monitoring cancels. If that run fails then, its failure is reported.
TOO_LONG = "Canceling due to exceeding maximum runtime"
JOB_OF_SCHEDULE = "__anonymous_asset_job_"
MAX_ALERTS = 20
SENDING_S = 30.0


class Look(NamedTuple):
    """What is stored after a position: the events of the cluster, in order, and the position of the last of all."""

    events: Iterator[Event]
    end: int


def newest_position(instance: dg.DagsterInstance) -> int:
    """Returns the position of the newest event."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def look_after(instance: dg.DagsterInstance, cluster: str, position: int) -> Look:
    """Returns what is stored after a position, at most EVENTS_AT_ONCE events of each type.

    Where all events were wiped, positions begin again; then it looks from the newest on.
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


def _evaluation(cluster: str, at: int, entry: dg.EventLogEntry) -> Evaluation | None:
    made = entry.get_dagster_event().asset_check_evaluation_data
    if made.asset_key.path[0] != cluster:
        return None
    return Evaluation(
        position=at,
        asset=made.asset_key.to_user_string(),
        check=made.check_name,
        passed=made.passed,
        severity=Severity(made.severity.value),
        description=made.description or "",
        run_id=entry.run_id,
    )


def _failed_run(instance: dg.DagsterInstance, cluster: str, at: int, entry: dg.EventLogEntry) -> FailedRun | None:
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
    job = run.job_name.removeprefix(JOB_OF_SCHEDULE)
    return FailedRun(position=at, run_id=run.run_id, job=job, asset=asset, description=description)


def _assets(instance: dg.DagsterInstance, run_id: str) -> tuple[set[dg.AssetKey], set[dg.AssetKey]]:
    """Returns the assets that a run was to make, and those that it was to check."""
    planned = {DagsterEventType.ASSET_MATERIALIZATION_PLANNED, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED}
    assets, checked = set(), set()
    for event in _events_of(instance, run_id, planned):
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            assets.add(event.asset_materialization_planned_data.asset_key)
        else:
            checked.add(event.asset_check_planned_data.asset_key)
    return assets, checked


def _why(instance: dg.DagsterInstance, run: dg.DagsterRun, entry: dg.EventLogEntry) -> str | None:
    """Returns why a run failed; None for one that a person cancelled, or whose failure is another event."""
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
    """Returns the message of the error that caused Dagster's own."""
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else error.message.strip()


def _events_of(instance: dg.DagsterInstance, run_id: str, types: set[DagsterEventType]) -> Iterator[dg.DagsterEvent]:
    for record in instance.get_records_for_run(run_id, of_type=types).records:
        yield record.event_log_entry.get_dagster_event()


class SendResult(NamedTuple):
    """What a tick did: how many alerts it sent, what was reported by then, and why the rest waits, "" for no rest."""

    alerts: int
    seen: Seen
    rest: str


def alerts_sensor(cluster: DeclaredCluster, declared: str | None) -> dg.SensorDefinition:
    """Returns the sensor, which runs by default and begins with what happens after its first tick.

    Args:
        cluster: The cluster.
        declared: The webhook; None for that of the environment.
    """

    @dg.sensor(
        name=f"{cluster.name}_alerts",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Tells the webhook of runs and checks that fail, and of checks that pass again.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Looks at the events since the last tick, and sends what is new."""
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
    """Sends what is new, and returns what was sent; raises ServiceUnreachableError where the first alert is not taken.

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
