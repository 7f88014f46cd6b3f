"""The request of an alert: JSON with a `text`, as Slack and what imitates it show it, and the alert's fields.

{"text": "millrace: the check freshness of millrace/table/flights fails (WARN): …", "kind": "check_failed",
 "cluster": "millrace", "asset": "millrace/table/flights", "check": "freshness", "job": null, "run_id": "…",
 "url": "http://…/runs/…", "severity": "WARN", "description": "…"}

What an alert does not have is null.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.errors import PlatformError
from millrace.json_values import Json
from millrace_pipelines.declaration.attributes import webhook_url
from millrace_pipelines.declaration.state import WEBHOOK
from millrace_pipelines.defs.alerts.news import Alert, Kind
from millrace_pipelines.http import notify

TIMEOUT_S = 10.0
SHOWN_CHARACTERS = 2000


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
