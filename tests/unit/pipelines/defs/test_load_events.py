"""What becomes of the outcomes of a step's jobs in Dagster."""

import dagster as dg
import pytest

from millrace_pipelines.defs.load_process import (
    MAX_RETRIES,
    asset_events,
    nothing_new_metadata,
    raise_failures,
    report_metadata,
    step_failure,
)
from millrace_pipelines.runs.jobs import Failed
from millrace_pipelines.spark.errors import Accept
from millrace_pipelines.warehouse.ledger.plan import LostRange
from millrace_pipelines.warehouse.load.report import LoadedRange, LoadReport, ReloadReport
from millrace_support.loads import Loads

LOST = Failed(sentence="offsets are gone", error="OffsetsLostError", may_pass=False, option=Accept.LOST_OFFSETS)
STALE = Failed(sentence="another load was first", error="StaleLedgerError", may_pass=True)
SPAN = LoadedRange(0, 5, 14, 7, 1, 0, 0, 1)
LOST_RANGE = LostRange(0, 3, 5, "retention")


def run(outcomes):
    """Runs a step whose jobs have these outcomes, and returns what Dagster keeps of it."""
    specs = [dg.AssetSpec(["table", name], deps=[["topic", name]], skippable=True) for name in "abc"]

    @dg.multi_asset(specs=specs, name="loads")
    def loads(context: dg.AssetExecutionContext):
        yield from asset_events(context, outcomes)

    return dg.materialize([loads], raise_on_error=False)


def load(directory, rows):
    """Commits rows as a load does, and returns its outcome."""
    table = Loads(directory)
    version = table.load((0, rows), range(rows))
    return LoadReport(topic="events", table=directory, rows=rows, version=version)


def test_what_is_done_is_kept_though_the_step_fails(tmp_path):
    loaded = load(str(tmp_path / "a"), 3)
    result = run([("table/a", loaded), ("table/b", LOST), ("table/c", LoadReport(topic="c", table="/c"))])
    [materialization] = result.asset_materializations_for_node("loads")
    shown = {name: value.value for name, value in materialization.metadata.items()}
    assert (materialization.asset_key.path, shown["rows"], shown["dagster/row_count"]) == (["table", "a"], 3, 3)
    assert (shown["committed version"], shown["lag"]) == (1, 0)
    [observation] = result.asset_observations_for_node("loads")
    assert observation.asset_key.path == ["table", "c"]
    [failure] = [event for event in result.all_events if event.is_step_failure]
    data = failure.step_failure_data
    assert data.user_failure_data.description == "table/b: offsets are gone"
    assert data.error.message == "dagster._core.definitions.events.Failure: table/b: offsets are gone\n"
    assert data.error.cause is None


def test_a_table_that_cant_be_shown_fails_no_other(tmp_path):
    gone = LoadReport(topic="a", table=str(tmp_path / "gone"), rows=3, version=1)
    result = run([("table/a", gone), ("table/b", load(str(tmp_path / "b"), 2))])
    [materialization] = result.asset_materializations_for_node("loads")
    assert materialization.asset_key.path == ["table", "b"]
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert failure.step_failure_data.user_failure_data.description.startswith("table/a: ")


def test_a_step_without_news_succeeds():
    result = run([("table/c", LoadReport(topic="c", table="/c"))])
    assert result.success
    assert result.asset_materializations_for_node("loads") == []


def test_the_failure_of_one_job_is_its_sentence():
    failure = step_failure({"table/b": LOST}, 1)
    assert (failure.description, failure.allow_retries) == ("offsets are gone", False)
    shown = {label: value.value for label, value in failure.metadata.items()}
    assert shown == {
        "table/b: error": "OffsetsLostError",
        "table/b: option that goes on": "accept_lost_offsets: true",
    }


def test_the_failure_of_several_jobs_names_each():
    failure = step_failure({"table/b": LOST, "table/c": STALE}, 3)
    assert failure.description == "2 of 3 failed\ntable/b: offsets are gone\ntable/c: another load was first"
    assert not failure.allow_retries


def test_only_what_may_pass_altogether_is_retried():
    with pytest.raises(dg.RetryRequested):
        raise_failures({"table/c": STALE}, 1, 0)
    with pytest.raises(dg.Failure):
        raise_failures({"table/c": STALE}, 1, MAX_RETRIES)
    with pytest.raises(dg.Failure):
        raise_failures({"table/b": LOST, "table/c": STALE}, 2, 0)


def rows(table):
    return [record.data for record in table.records]


def test_the_metadata_says_what_the_report_of_a_load_says():
    report = LoadReport(
        topic="events",
        table="/tables/events",
        rows=7,
        dead_letters=1,
        bytes=2048,
        value_bytes=4096,
        ranges=(SPAN,),
        lost=(LOST_RANGE,),
        missing=(LostRange(0, 9, 11, "missing"),),
        lag={0: 2, 1: 3},
        tasks=1,
        seconds=1.23456,
        version=4,
    )
    shown = report_metadata(report)
    assert (shown["value bytes"], shown["seconds"], shown["lag"]) == (4096, 1.235, 5)
    assert rows(shown["offsets"]) == [
        {"partition": 0, "from offset": 5, "until offset": 14, "rows": 7, "dead letters": 1}
        | {"control": 0, "aborted": 0, "compacted": 1, "missing": 0}
    ]
    assert rows(shown["lost offsets"]) == [
        {"partition": 0, "from offset": 3, "until offset": 5, "reason": "retention"},
        {"partition": 0, "from offset": 9, "until offset": 11, "reason": "missing"},
    ]


def test_the_metadata_says_what_the_report_of_a_reload_says():
    report = ReloadReport(
        topic="events", table="/tables/events", replaced=(SPAN,), rows=7, removed_rows=6, seconds=1.0, version=5
    )
    shown = report_metadata(report)
    assert shown["removed rows"] == 6
    assert rows(shown["replaced"])[0]["until offset"] == 14
    assert (shown["backfilled"], shown["lost offsets"]) == ("none", "none")


def test_nothing_new_claims_no_rows():
    shown = nothing_new_metadata(LoadReport(topic="events", table="/tables/events", lag={0: 4}))
    assert (shown["loaded"], shown["lag"], "rows" in shown) == ("nothing new", 4, False)


@pytest.mark.parametrize("shown_by", [report_metadata, nothing_new_metadata])
def test_a_table_that_could_not_be_entered_in_a_catalog_says_so(shown_by):
    report = LoadReport(topic="events", table="/tables/events", register_error="glue:a.b: it is not there")
    assert shown_by(report)["not entered in a catalog"] == "glue:a.b: it is not there"
    assert "not entered in a catalog" not in shown_by(LoadReport(topic="events", table="/tables/events"))
