"""A person loads, checks, mends and schedules a table by clicks in Dagster's pages, in a real browser.

The tests follow one another on one platform. The pictures of their steps lie in the folder that MILLRACE_PICTURES
names, or else in pytest's temporary folder.
"""

import json
import os
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millrace.client import Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.project import write_definitions
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_support.chromium import VARIABLE, chromium_page, find_chromium
from millrace_support.dagster_pages import DagsterPages
from millrace_support.dagster_platform import dagster_platform
from millrace_support.dagster_ui import DagsterUi

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        CHROMIUM is None, reason=f"there is no Chromium: `make browser` installs Debian's, or {VARIABLE} names one"
    ),
]

PICTURES = "MILLRACE_PICTURES"
TODAY = datetime.combine(datetime.now(UTC), time(), UTC)
DAYS = [(TODAY - timedelta(days=ago)).date().isoformat() for ago in (6, 5, 4, 3, 2)]
CARRIERS = ("AA", "UA")
DEFINITIONS = f"""
type: millrace_pipelines.MillraceComponent
attributes:
  load_new_records: false
  reload_since: {DAYS[0]}
  tables:
    - topic: flights
      partitions: 2
      config: {{retention.ms: -1}}
      schema: flights.json
      freshness: 1d
      owners: ["team:data"]
"""
SCHEMA = {
    "fields": [
        {"name": "carrier", "type": "string", "nullable": False},
        {"name": "delay", "type": "integer", "nullable": False},
    ]
}
SCHEDULE = "nightly_audit_millrace"


@pytest.fixture(scope="module")
def platform(tmp_path_factory, warm_loads):
    """A platform whose topic has a record of each carrier for each day, in a partition for each carrier."""
    directory = tmp_path_factory.mktemp("browser") / "state"
    write_definitions(str(directory), "cluster/flights.json", json.dumps(SCHEMA))
    with dagster_platform(directory, DEFINITIONS, {"flights"}) as platform:
        with Cluster(platform.addresses.broker) as cluster:
            producer = SyncProducer(cluster)
            for partition, carrier in enumerate(CARRIERS):
                producer.send("flights", partition, [flight(carrier, number) for number in range(len(DAYS))])
        yield platform


def flight(carrier, number):
    noon = datetime.fromisoformat(DAYS[number]).replace(hour=12, tzinfo=UTC)
    value = json.dumps({"carrier": carrier, "delay": number}).encode()
    return NewRecord(value, carrier.encode(), int(noon.timestamp() * 1000))


@pytest.fixture(scope="module")
def pages(platform, tmp_path_factory):
    pictures = Path(os.environ.get(PICTURES) or tmp_path_factory.mktemp("pictures"))
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium_page(CHROMIUM) as page:
        yield DagsterPages(page, platform.addresses.dagster, pictures)


@pytest.fixture(scope="module")
def ui(platform):
    return DagsterUi(platform.addresses.dagster)


@pytest.fixture(scope="module")
def table(platform):
    return str(Path(platform.path("warehouse"), "flights"))


def test_a_load_is_launched_and_its_rows_plot_and_preview_are_seen(pages, ui):
    pages.open_asset("table/flights")
    pages.picture("before")
    run_id = pages.materialize()
    run = ui.finished(run_id)
    assert run.status == "SUCCESS", run.error
    pages.open_run(run_id)
    pages.see("Success")
    pages.picture("run")

    pages.open_asset("table/flights")
    pages.see_below("Row count", "10")
    pages.see_below("Latest check results", "8")
    pages.picture("table")
    rows = pages.preview("newest rows")
    assert sorted((row[-2], row[-1]) for row in rows) == [(of, str(delay)) for of in CARRIERS for delay in range(5)]
    pages.see_plot("rows")
    pages.choose_tab("Lineage")
    pages.see("8 / 8 Passed")
    pages.picture("lineage")


def test_a_check_fails_and_says_why(pages, table):
    loaded = DeltaTable(table).version()
    DeltaTable(table).delete("partition = 0 and offset = 2")
    pages.open_asset("table/flights", "Checks")
    pages.execute_check("completeness")
    pages.see("Failed")
    pages.see_part("The audit has one finding: partition 0: 1 offsets are not there: 2; millrace warehouse reload ")
    pages.picture("failed-check")
    DeltaTable(table).restore(loaded)


def test_three_days_are_reloaded_by_a_range_of_partitions(pages, ui, table):
    pages.open_asset("reload/flights")
    backfill = pages.reload_range(DAYS[1], DAYS[3])
    [run_id] = ui.backfilled(backfill)
    reloaded = ui.run(run_id).loaded["reload/flights"]
    assert (reloaded["removed rows"], reloaded["rows"]) == (6, 6)
    pages.open_run(backfill)
    pages.see("100% completed")
    pages.picture("backfill")

    pages.open_asset("reload/flights")
    pages.see_below("Row count", "10")
    pages.see_metadata("removed rows", "6")
    pages.picture("reload")
    assert audit(table) == []
    pages.open_asset("table/flights")
    pages.see_plot("rows")
    pages.choose_tab("Lineage")
    pages.see("8 / 8 Passed")
    pages.picture("lineage-after-reload")


def test_a_schedule_is_toggled(pages, ui):
    assert ui.schedule(SCHEDULE)["status"] == "RUNNING"
    pages.toggle(SCHEDULE)
    assert ui.schedule(SCHEDULE)["status"] == "STOPPED"
    pages.picture("automation")
    pages.toggle(SCHEDULE)
    assert ui.schedule(SCHEDULE)["status"] == "RUNNING"
