"""What is read out of Dagster's answer for a run."""

import pytest

from millrace.errors import PlatformError
from millrace_ops.supervisor.dagster_api import parse_run


def answer(status, *events, materializations=(), tags=()):
    run = {"__typename": "Run", "status": status, "assetMaterializations": list(materializations)}
    run["tags"] = [{"key": key, "value": value} for key, value in dict(tags).items()]
    return {"runOrError": run, "logsForRun": {"events": list(events)}}


def test_a_finished_run():
    run = parse_run(
        "id",
        answer(
            "SUCCESS",
            {"__typename": "LogMessageEvent", "message": "load: planned"},
            {"__typename": "LogMessageEvent", "message": "load: committed"},
            {"__typename": "RunSuccessEvent"},
            {"__typename": "AssetCheckEvaluationEvent", "evaluation": {"checkName": "completeness", "success": True}},
            materializations=[
                {
                    "assetKey": {"path": ["millrace", "table", "flights"]},
                    "metadataEntries": [
                        {"label": "rows", "intRepr": "84292"},
                        {"label": "seconds", "floatValue": 0.5},
                        {"label": "table"},
                    ],
                }
            ],
        ),
    )
    assert run.is_finished
    assert run.figures == {"millrace/table/flights": {"rows": 84292, "seconds": 0.5}}
    assert run.checks == {"completeness": True}
    assert run.message == "load: committed"
    assert run.failure == ""


def test_a_failed_run_says_why_its_step_failed():
    step = {"__typename": "ExecutionStepFailureEvent", "error": {"message": "the disk is full\n"}}
    run = parse_run("id", answer("FAILURE", step, {"__typename": "RunFailureEvent", "message": "steps failed"}))
    assert run.failure == "the disk is full"


def test_a_run_that_failed_without_a_step():
    run = parse_run("id", answer("FAILURE", {"__typename": "RunFailureEvent", "message": "the worker was lost"}))
    assert run.failure == "the worker was lost"


RETRIES = [
    ("FAILURE", {}, False, None),
    ("FAILURE", {"dagster/will_retry": "false"}, True, None),
    ("FAILURE", {"dagster/will_retry": "true"}, False, None),
    ("FAILURE", {"dagster/will_retry": "true", "dagster/auto_retry_run_id": "next"}, False, "next"),
    ("SUCCESS", {}, True, None),
    ("CANCELED", {}, True, None),
    ("STARTED", {}, False, None),
]


@pytest.mark.parametrize(("status", "tags", "is_settled", "retried_as"), RETRIES)
def test_a_run_in_whose_place_dagster_starts_another(status, tags, is_settled, retried_as):
    run = parse_run("id", answer(status, tags=tags))
    assert (run.is_settled, run.retried_as) == (is_settled, retried_as)


@pytest.mark.parametrize("status", ["QUEUED", "STARTING", "STARTED", "CANCELING"])
def test_a_run_under_way(status):
    assert not parse_run("id", answer(status)).is_finished


def test_an_unknown_run():
    with pytest.raises(PlatformError, match="does not know the run id"):
        parse_run("id", {"runOrError": {"__typename": "RunNotFoundError"}, "logsForRun": {}})
