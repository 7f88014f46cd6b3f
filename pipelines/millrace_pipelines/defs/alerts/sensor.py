"""The sensor that tells a webhook of what failed.

A tick sends at most MAX_ALERTS, for no longer than SENDING_S, as Dagster ends ticks after a minute; the next tick sends
the rest. An alert that the webhook does not take is sent again by the next tick, before the alerts that follow it. If
it is the first alert of its tick, the tick fails. If others were sent before it, the tick must not fail: Dagster
forgets the cursor of a failed tick, and they would be sent again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import dagster as dg

from millrace_pipelines.declaration.cluster import DeclaredCluster
from millrace_pipelines.defs.alerts.events import Look, look_after, newest_position
from millrace_pipelines.defs.alerts.news import Alert, Seen, alert_of, cursor_of, parse_cursor
from millrace_pipelines.defs.alerts.webhook import Webhook, webhook_of
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.ticks import counted, failing_in_words
from millrace_pipelines.http import ServiceUnreachableError

MAX_ALERTS = 20
SENDING_S = 30.0


class Told(NamedTuple):
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


def tell(look: Look, seen: Seen, send: Callable[[Alert], None], clock: Callable[[], float]) -> Told:
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
                return Told(sent, seen, "; the next tick sends the rest")
            try:
                send(alert)
            except ServiceUnreachableError as error:
                if not sent:
                    raise
                return Told(sent, seen, f"; the next tick sends the rest, as the next one was not taken: {error}")
            sent += 1
        seen = after
    return Told(sent, seen._replace(position=look.end), "")


def _said(sentence: str, seen: Seen) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=dg.SkipReason(sentence), cursor=cursor_of(seen))
