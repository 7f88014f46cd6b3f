"""Dagster as the console shows it: its newest runs, and the pages of the assets of a topic.

Its webserver is asked by GraphQL, without a login, as everybody may who reaches it. Only the page of jobs says that it
does not answer; other pages are without their links to it then, and for RESTS_S nobody asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from millrace.clock import Clock
from millrace.errors import MillraceError, PlatformError
from millrace.extras import require

RUNS_SHOWN = 20
ASSETS_SHOWN = 3
TIMEOUT_S = 5.0
LINKS_TIMEOUT_S = 2.0
RESTS_S = 30.0
KINDS = ("topic", "table")

RUNS = """
query Runs($limit: Int!) {
  runsOrError(limit: $limit) {
    ... on Runs { results {
      runId status jobName creationTime startTime endTime assetSelection { path } tags { key value }
    } }
    ... on PythonError { message }
  }
}"""

ASSETS = """
query Assets($keys: [AssetKeyInput!]!) { assetNodes(assetKeys: $keys) { assetKey { path } } }"""

STARTED_BY: Mapping[str, str] = {"dagster/schedule_name": "schedule", "dagster/sensor_name": "sensor"}
BACKFILL, PARTITION = "dagster/backfill", "dagster/partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as the page of jobs shows it; `what` are the assets that it makes, or else its job."""

    url: str
    what: str
    status: str
    started_by: str
    created_ms: int
    duration_ms: int | None


class Link(NamedTuple):
    """A link to a page of Dagster."""

    label: str
    url: str


class Dagster:
    """Dagster's webserver at `url`, "" for none, and the name of the cluster with which its keys of assets begin."""

    def __init__(self, url: str, cluster: str, clock: Clock) -> None:
        self.url = url.rstrip("/")
        self._cluster = cluster
        self._clock = clock
        self._rests_until_s = 0.0

    def runs(self) -> list[Run]:
        """Returns the newest runs, at most RUNS_SHOWN; raises PlatformError where Dagster does not tell them."""
        answer = self._asked(RUNS, {"limit": RUNS_SHOWN}, TIMEOUT_S)["runsOrError"]
        if "results" not in answer:
            raise PlatformError(f"Dagster does not list its runs: {answer.get('message', '')}")
        now_s = self._clock.now_ms() / 1000
        return [parse_run(one, self.url, now_s) for one in answer["results"]]

    def links(self, topic: str, kinds: Sequence[str] = KINDS) -> list[Link]:
        """Returns links to the assets of a topic of these kinds that Dagster has; none where it does not answer."""
        if not self.url or self._clock.monotonic_s() < self._rests_until_s:
            return []
        keys = {(self._cluster, kind, topic): kind for kind in kinds}
        try:
            answer = self._asked(ASSETS, {"keys": [{"path": list(key)} for key in keys]}, LINKS_TIMEOUT_S)
        except MillraceError:
            self._rests_until_s = self._clock.monotonic_s() + RESTS_S
            return []
        there = {tuple(one["assetKey"]["path"]) for one in answer["assetNodes"]}
        return [Link(kind, asset_url(self.url, key)) for key, kind in keys.items() if key in there]

    def _asked(self, query: str, variables: dict[str, Any], timeout_s: float) -> Mapping[str, Any]:
        require("Dagster on the console's pages", "pipelines")
        from millrace_ops.supervisor.dagster_api import DagsterApi  # noqa: PLC0415  # it needs an extra

        return DagsterApi(self.url).query(query, variables, timeout_s=timeout_s)


def asset_url(url: str, key: Sequence[str]) -> str:
    """Returns the address of an asset's page."""
    return f"{url}/assets/{'/'.join(quote(one, safe='') for one in key)}"


def parse_run(run: Mapping[str, Any], url: str, now_s: float) -> Run:
    """Returns a run from Dagster's answer; one that has not ended lasts until now."""
    started_s, ended_s = run["startTime"], run["endTime"]
    return Run(
        url=f"{url}/runs/{quote(run['runId'], safe='')}",
        what=_what(run),
        status=run["status"],
        started_by=_started_by({one["key"]: one["value"] for one in run["tags"]}),
        created_ms=int(1000 * run["creationTime"]),
        duration_ms=None if started_s is None else int(1000 * max(0.0, (ended_s or now_s) - started_s)),
    )


def _what(run: Mapping[str, Any]) -> str:
    assets = ["/".join(one["path"]) for one in run["assetSelection"] or ()]
    more = f" and {len(assets) - ASSETS_SHOWN:,} more" if len(assets) > ASSETS_SHOWN else ""
    return ", ".join(sorted(assets)[:ASSETS_SHOWN]) + more or str(run["jobName"])


def _started_by(tags: Mapping[str, str]) -> str:
    named = next((f"{kind} {tags[tag]}" for tag, kind in STARTED_BY.items() if tag in tags), "")
    starter = named or (f"backfill {tags[BACKFILL]}" if BACKFILL in tags else "hand")
    return f"{starter}, partition {tags[PARTITION]}" if PARTITION in tags else starter
