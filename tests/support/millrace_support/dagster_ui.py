"""Asks a platform's webserver what Dagster's pages ask it, in the words of its GraphQL API."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from millrace_ops.supervisor.dagster_api import ASSET_JOB, FINISHED, LOCATION_NAME, REPOSITORY_NAME
from millrace_pipelines.http import post_json
from millrace_support.waiting import until

T = TypeVar("T")

PLACE = {"repositoryLocationName": LOCATION_NAME, "repositoryName": REPOSITORY_NAME}

RUN = """
query Run($runId: ID!) {
  runOrError(runId: $runId) { ... on Run { status tags { key value } } }
  logsForRun(runId: $runId, limit: 1000) { ... on EventConnection { events {
    __typename
    ... on MaterializationEvent { assetKey { path } metadataEntries { label ... on IntMetadataEntry { intRepr } } }
    ... on ObservationEvent { assetKey { path } metadataEntries { label ... on IntMetadataEntry { intRepr } } }
    ... on ExecutionStepFailureEvent { error { message } }
    ... on AssetCheckEvaluationEvent { evaluation { checkName success assetKey { path } } }
    ... on RunFailureEvent { message }
  } } }
}"""
STATUS = "query Status($runId: ID!) { runOrError(runId: $runId) { ... on Run { status } } }"
LAUNCH = """
mutation Launch($parameters: ExecutionParams!) {
  launchRun(executionParams: $parameters) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""
AGAIN = """
mutation Again($parameters: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $parameters) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
CHECKED = """
query Checked($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode { assetChecksOrError { ... on AssetChecks {
    checks { name executionForLatestMaterialization { status } }
  } } } }
}"""
BACKFILL = """
query Backfill($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status runs { runId } error { message } } }
}"""
SCHEDULE = """
query Schedule($of: ScheduleSelector!) { scheduleOrError(scheduleSelector: $of) { ... on Schedule {
  scheduleState { id status }
} } }"""


class Run:
    """What a page of a run shows.

    Attributes:
        status: Its status in Dagster, such as SUCCESS.
        tags: Its tags.
        loaded: By the name of each materialized asset, without the cluster, the integers of its metadata.
        observed: The same for observations.
        checks: By asset and name, whether each check passed.
        error: What the page shows of the first step that failed, or of the run; "" where none did.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        run, events = answer["runOrError"], answer["logsForRun"]["events"]
        self.status: str = run["status"]
        self.tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        self.loaded = _figures(event for event in events if event["__typename"] == "MaterializationEvent")
        self.observed = _figures(event for event in events if event["__typename"] == "ObservationEvent")
        evaluations = [event["evaluation"] for event in events if "evaluation" in event]
        self.checks = {(_name(one["assetKey"]), one["checkName"]): one["success"] for one in evaluations}
        errors = [event["error"]["message"] for event in events if event.get("error")]
        errors += [event["message"] for event in events if event["__typename"] == "RunFailureEvent"]
        self.error: str = next(iter(errors), "").strip()


def _name(key: Mapping[str, Any]) -> str:
    return "/".join(key["path"][1:])


def _figures(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {
        _name(event["assetKey"]): {
            entry["label"]: int(entry["intRepr"]) for entry in event["metadataEntries"] if "intRepr" in entry
        }
        for event in events
    }


def asset_key(name: str) -> dict[str, list[str]]:
    """Returns the key of an asset of the cluster `millrace`, such as table/flights."""
    return {"path": ["millrace", *name.split("/")]}


class DagsterUi:
    """The webserver at `http://HOST:PORT`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str, **variables: Any) -> Any:
        """Returns the data of an answer; an answer with errors fails the test."""
        body: Any = {"query": query, "variables": variables}
        answer: Any = post_json(f"{self.url}/graphql", body, timeout_s=60, advice="", use_proxy=False)
        assert not answer.get("errors"), answer["errors"]
        return answer["data"]

    def launch(
        self, *, job: str = ASSET_JOB, assets: Sequence[str] = (), config: Mapping[str, object] | None = None
    ) -> str:
        """Launches a job, or a run of these assets, as the Launchpad does; returns the run's id."""
        selection = {"assetSelection": [asset_key(name) for name in assets]} if assets else {}
        ops = {"ops": {name: {"config": values} for name, values in (config or {}).items()}}
        parameters = {"selector": {**PLACE, "jobName": job, **selection}, "mode": "default", "runConfigData": ops}
        return _launched(self.ask(LAUNCH, parameters=parameters)["launchRun"])

    def launch_again(self, run_id: str) -> str:
        """Does what a click on *Re-execute from failure* does; returns the new run's id."""
        parameters = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return _launched(self.ask(AGAIN, parameters=parameters)["launchRunReexecution"])

    def mended(self, job: str, step: str, config: Mapping[str, object]) -> Run:
        """Runs a job that mends tables, whose only step takes this configuration; it has to succeed."""
        run = self.finished(self.launch(job=f"{job}_millrace", config={f"millrace_{step}": config}))
        assert run.status == "SUCCESS", run.error
        return run

    def checked(self, asset: str) -> dict[str, str]:
        """Returns by name how each check of an asset went after its newest materialization."""
        checks = self.ask(CHECKED, key=asset_key(asset))["assetNodeOrError"]["assetChecksOrError"]["checks"]
        found = {one["name"]: one["executionForLatestMaterialization"] for one in checks}
        return {name: execution["status"] for name, execution in found.items() if execution is not None}

    def run(self, run_id: str) -> Run:
        """Returns the run as it is now."""
        return Run(self.ask(RUN, runId=run_id))

    def finished(self, run_id: str) -> Run:
        """Awaits the end of a run, and returns it."""
        await_it(lambda: self.ask(STATUS, runId=run_id)["runOrError"]["status"] in FINISHED)
        return self.run(run_id)

    def backfilled(self, backfill_id: str) -> list[str]:
        """Awaits the end of a backfill, which has to succeed, and returns the ids of its runs."""

        def ended() -> Any:
            state = self.ask(BACKFILL, id=backfill_id)["partitionBackfillOrError"]
            return state if state["status"] not in ("REQUESTED", "COMPLETING") else None

        done = await_it(ended)
        assert done["status"] == "COMPLETED_SUCCESS", done["error"]
        return [run["runId"] for run in done["runs"]]

    def schedule(self, name: str) -> dict[str, str]:
        """Returns the id of a schedule's state, and as `status` whether it is RUNNING or STOPPED."""
        found = self.ask(SCHEDULE, of={**PLACE, "scheduleName": name})["scheduleOrError"]["scheduleState"]
        return {"id": found["id"], "status": found["status"]}


def _launched(answer: Mapping[str, Any]) -> str:
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def await_it(find: Callable[[], T | None]) -> T:
    """Calls a function until it returns something that is true, and returns that."""
    found = until(find, pause_s=0.25)
    assert found is not None
    return found
