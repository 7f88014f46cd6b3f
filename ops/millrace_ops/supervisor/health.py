"""Whether each part of a running platform is well, in the part's own words.

ZooKeeper             answers `srvr` with a mode
broker                /readyz of its admin endpoint (docs/health.md)
webserver             answers a query; what it says of the other two:
code server, daemon   the definitions are loaded, and each thread of the daemon beats
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Self, TypeAlias

from millrace.addresses import parse_addresses
from millrace.errors import MillraceError, PlatformError
from millrace.json_values import Json
from millrace.zk.embedded import is_serving
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_pipelines.http import UnsuccessfulStatusError, get_json

INTERVAL_S = 5.0
TIMEOUT_S = 10.0

Health: TypeAlias = Mapping[str, str]
"""By part, what is wrong with it; "" where it is well."""


def zookeeper_problem(addresses: str) -> str:
    """Returns what is wrong with the ZooKeeper at `HOST:PORT,…[/chroot]`; "" if a server answers and has a leader."""
    servers = parse_addresses(addresses.partition("/")[0])
    return "" if any(is_serving(*server) for server in servers) else "it does not answer, or has no leader"


def broker_problem(
    admin_url: str, token: str, context: ssl.SSLContext | None = None, *, service: str = "broker"
) -> str:
    """Returns why clients can't use the broker now, "" where they can.

    `context` is for an endpoint with TLS, and `service` the name of its log.
    """
    url, advice = f"{admin_url}/readyz", f"its log is {service}.log"
    try:
        get_json(url, timeout_s=TIMEOUT_S, advice=advice, token=token, context=context)
    except UnsuccessfulStatusError as error:
        return "; ".join(_reasons(error.answer())) or str(error)
    except PlatformError as error:
        return str(error)
    return ""


def dagster_problems(url: str, fault: str = "") -> dict[str, str]:
    """Returns what is wrong with each part of Dagster, by part; "" where it is well.

    `fault` is what is wrong with the files that declare tables, for which the code server goes on with earlier ones.
    """
    try:
        health = DagsterApi(url).health()
        return {"webserver": "", **health, "code server": health["code server"] or "; ".join(fault.splitlines())}
    except MillraceError as error:
        unknown = "the webserver can't be asked"
        return {"webserver": str(error), "code server": unknown, "daemon": unknown}


def _reasons(answer: Json) -> list[str]:
    reasons = answer.get("reasons") if isinstance(answer, dict) else None
    return [str(reason) for reason in reasons] if isinstance(reasons, list) else []


class HealthWatch:
    """Examines a platform repeatedly, in a thread; `latest` is the newest health of its parts, None before the first.

    Args:
        look: Returns the health of all parts.
        interval_s: The time between looks.
    """

    def __init__(self, look: Callable[[], Health], interval_s: float = INTERVAL_S) -> None:
        self._look = look
        self._interval_s = interval_s
        self._ended = Event()
        self._thread = Thread(target=self._run, name="health", daemon=True)
        self.latest: Health | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.latest = self._look()
            self._ended.wait(self._interval_s)
