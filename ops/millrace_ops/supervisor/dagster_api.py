"""Dagster's GraphQL API, as far as the platform uses it: it asks for health and for runs, and launches runs.

Dagster's own UI speaks the same API, so what is launched here is what a click there launches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from millrace.errors import PlatformError
from millrace.json_values import Json
from millrace_pipelines.http import ServiceUnreachableError, post_json

Answer: TypeAlias = Mapping[str, Any]
"""An object in GraphQL's answer, of the fields that its query names."""

TIMEOUT_S = 30.0
HEALTH_TIMEOUT_S = 10.0
LOCATION_NAME = "millrace"
REPOSITORY_NAME = "__repository__"
ASSET_JOB = "__ASSET_JOB"
FINISHED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})

HEALTH = """
query Health {
  workspaceOrError { ... on Workspace { locationEntries { loadStatus
    locationOrLoadError { __typename ... on PythonError { message causes { message } } } } } }
  instance { daemonHealth { allDaemonStatuses { daemonType required healthy lastHeartbeatErrors { message } } } }
}"""

LAUNCH = """
mutation Launch($parameters: ExecutionParams!) {
  launchRun(executionParams: $parameters) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""

WILL_RETRY, RETRIED_AS = "dagster/will_retry", "dagster/auto_retry_run_id"

RUN = """
query Run($runId: ID!) {
  runOrError(runId: $runId) {
    __typename
    ... on Run {
      status
      tags { key value }
      assetMaterializations {
        assetKey { path }
        metadataEntries { label ... on IntMetadataEntry { intRepr } ... on FloatMetadataEntry { floatValue } }
      }
    }
  }
  logsForRun(runId: $runId, limit: 1000) {
    ... on EventConnection { events {
      __typename
      ... on LogMessageEvent { message }
      ... on ExecutionStepFailureEvent { error { message } }
      ... on RunFailureEvent { message }
      ... on AssetCheckEvaluationEvent { evaluation { checkName success } }
    } }
  }
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run of Dagster.

    Attributes:
        run_id: The id of the run in Dagster.
        status: The status of the run, as Dagster names it.
        figures: The numbers in the metadata of each materialized asset, by asset and label.
        checks: The verdict of each asset check.
        message: The last line that the run itself logged.
        failure: Why the run failed, "" where it did not.
        will_retry: Whether Dagster starts another run in place of this one, whose process was lost; None where it has
            not said so yet.
        retried_as: The id of that run, once there is one.
    """

    run_id: str
    status: str
    figures: Mapping[str, Mapping[str, float]]
    checks: Mapping[str, bool]
    message: str
    failure: str
    will_retry: bool | None = None
    retried_as: str | None = None

    @property
    def is_finished(self) -> bool:
        """Returns whether the run has ended."""
        return self.status in FINISHED

    @property
    def is_settled(self) -> bool:
        """Returns whether the run has ended and no other one takes its place; Dagster says so of each failed run."""
        return self.is_finished and (self.status != "FAILURE" or self.will_retry is False)


class DagsterApi:
    """A client of Dagster's webserver at `http://HOST:PORT`.

    Args:
        url: Its address.
        timeout_s: How long a query may take; the launch of many assets takes long.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self._timeout_s = timeout_s

    def is_ready(self) -> bool:
        """Returns whether the code location is loaded and the daemon's threads are well.

        Raises PlatformError where the code location can't be loaded.
        """
        try:
            answer = self.query(HEALTH, timeout_s=TIMEOUT_S)
        except ServiceUnreachableError:
            return False
        if problem := load_error(answer):
            raise PlatformError(f"Dagster can't load the definitions: {problem}")
        return is_loaded(answer) and not daemon_problem(answer)

    def health(self) -> dict[str, str]:
        """Returns what is wrong with the code server and the daemon, by part; "" where it is well.

        Raises ServiceUnreachableError where the webserver does not answer.
        """
        answer = self.query(HEALTH, timeout_s=HEALTH_TIMEOUT_S)
        loading = "" if is_loaded(answer) else "the definitions are being loaded"
        return {"code server": load_error(answer) or loading, "daemon": daemon_problem(answer)}

    def launch(self, assets: Sequence[str]) -> str:
        """Queues a run that materializes assets, with their checks; returns the id of the run.

        Raises PlatformError where Dagster refuses the run.

        `assets` are keys such as `millrace/table/flights`.
        """
        parameters: Json = {
            "selector": {
                "repositoryLocationName": LOCATION_NAME,
                "repositoryName": REPOSITORY_NAME,
                "jobName": ASSET_JOB,
                "assetSelection": [{"path": [*asset.split("/")]} for asset in assets],
            },
            "mode": "default",
            "executionMetadata": {"tags": []},
        }
        answer = self.query(LAUNCH, {"parameters": parameters})["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise PlatformError(f"Dagster refused to run {', '.join(assets)}: {json.dumps(answer)}")
        run_id: str = answer["run"]["runId"]
        return run_id

    def run(self, run_id: str) -> RunState:
        """Returns the present state of a run; raises PlatformError where there is no such run."""
        return parse_run(run_id, self.query(RUN, {"runId": run_id}))

    def query(self, query: str, variables: dict[str, Json] | None = None, *, timeout_s: float | None = None) -> Answer:
        """Sends a GraphQL query and returns the `data` of the response; raises PlatformError for a refusal."""
        url = f"{self.url}/graphql"
        body: Json = {"query": query, "variables": variables or {}}
        advice = "is Dagster's webserver up? Its log is webserver.log"
        answer = post_json(url, body, timeout_s=timeout_s or self._timeout_s, advice=advice, use_proxy=False)
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or answer.get("errors") or not isinstance(data, dict):
            raise PlatformError(f"{url}: Dagster refused the query: {json.dumps(answer)[:1000]}")
        return data


def is_loaded(answer: Answer) -> bool:
    """Returns whether all code locations are loaded, from the response to the health query."""
    return all(entry["loadStatus"] == "LOADED" for entry in answer["workspaceOrError"]["locationEntries"])


def load_error(answer: Answer) -> str:
    """Returns the first cause for which a code location can't be loaded, in words; "" where none has an error."""
    found = [entry["locationOrLoadError"] for entry in answer["workspaceOrError"]["locationEntries"]]
    errors = [[one, *one["causes"]] for one in found if one is not None and one["__typename"] == "PythonError"]
    return str(errors[0][-1]["message"]).strip() if errors else ""


def daemon_problem(answer: Answer) -> str:
    """Returns which of the daemon's threads are not well, each with its last error; "" where all are."""
    statuses = answer["instance"]["daemonHealth"]["allDaemonStatuses"]
    return "; ".join(_thread_problem(status) for status in statuses if status["required"] and not status["healthy"])


def _thread_problem(status: Answer) -> str:
    errors = [error["message"].strip().splitlines()[-1] for error in status["lastHeartbeatErrors"] if error["message"]]
    return f"{status['daemonType']}: {errors[-1] if errors else 'it has not been heard of lately'}"


def parse_run(run_id: str, answer: Answer) -> RunState:
    """Returns the state of a run from the response to the query; raises PlatformError for an unknown run."""
    run = answer["runOrError"]
    if run["__typename"] != "Run":
        raise PlatformError(f"Dagster does not know the run {run_id}")
    events = answer["logsForRun"]["events"]
    evaluations = [event["evaluation"] for event in events if "evaluation" in event]
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    return RunState(
        run_id=run_id,
        status=run["status"],
        figures={
            "/".join(event["assetKey"]["path"]): _figures(event["metadataEntries"])
            for event in run["assetMaterializations"]
        },
        checks={evaluation["checkName"]: evaluation["success"] for evaluation in evaluations},
        message=next((event["message"] for event in reversed(events) if event["__typename"] == "LogMessageEvent"), ""),
        failure=_failure(events),
        will_retry=None if WILL_RETRY not in tags else tags[WILL_RETRY] == "true",
        retried_as=tags.get(RETRIED_AS),
    )


def _figures(entries: Sequence[Answer]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for entry in entries:
        if "intRepr" in entry:
            figures[entry["label"]] = int(entry["intRepr"])
        elif "floatValue" in entry:
            figures[entry["label"]] = float(entry["floatValue"])
    return figures


def _failure(events: Sequence[Answer]) -> str:
    steps = [event["error"]["message"] for event in events if event.get("error")]
    runs = [event["message"] for event in events if event["__typename"] == "RunFailureEvent"]
    first: str = (steps or runs or [""])[0]
    return first.strip()
