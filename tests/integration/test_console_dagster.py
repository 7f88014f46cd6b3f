"""The console beside a webserver of Dagster: its runs on the page of jobs, and links to the assets of a topic."""

import os
import runpy
import subprocess
import sys
import textwrap
from html import unescape
from urllib.request import urlopen

import dagster as dg
import pytest

from millrace.ports import free_port
from millrace.testing.local_broker import LocalBroker
from millrace_support.console_pages import PROPERTIES, Browser, cells
from millrace_support.waiting import until

HOSTILE = "<script>document.title = 'owned'</script>"
DEFINITIONS = """
    import dagster as dg

    @dg.asset(key=["millrace", "table", "weather"])
    def table():
        pass

    @dg.asset(key=["elsewhere", "table", "orders"])
    def of_another_cluster():
        pass

    @dg.job
    def fails():
        @dg.op
        def fail():
            raise ValueError("as planned")
        fail()

    defs = dg.Definitions([table, of_another_cluster], jobs=[fails])
"""


@pytest.fixture(scope="module")
def dagster_url(tmp_path_factory):
    """The address of a webserver whose instance has two runs: of an asset, and of a job that failed."""
    home = tmp_path_factory.mktemp("dagster")
    file = home / "definitions.py"
    file.write_text(textwrap.dedent(DEFINITIONS))
    found = runpy.run_path(str(file))
    with dg.DagsterInstance.from_ref(dg.DagsterInstance.local_temp(str(home)).get_ref()) as instance:
        tags = {"dagster/schedule_name": HOSTILE, "dagster/partition": "2026-07-01"}
        assets = found["defs"].resolve_implicit_global_asset_job_def()
        key = dg.AssetKey(["millrace", "table", "weather"])
        assert assets.execute_in_process(instance=instance, asset_selection=[key], tags=tags).success
        assert not found["fails"].execute_in_process(instance=instance, raise_on_error=False).success
    port = free_port()
    command = [sys.executable, "-m", "dagster_webserver", "-f", str(file), "-h", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command, env={**os.environ, "DAGSTER_HOME": str(home)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    until(lambda: _serves(url))
    yield url
    process.terminate()
    process.wait(60)


def _serves(url):
    try:
        return urlopen(f"{url}/server_info", timeout=10).status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser(dagster_url):
    properties = {**PROPERTIES, "admin.console": "read-only", "admin.console.dagster.url": dagster_url}
    with LocalBroker(properties=properties) as broker:
        for topic in ("weather", "orders"):
            broker.create_topic(topic)
        yield Browser(broker.admin_url)


def test_jobs_shows_the_runs_of_dagster(browser, dagster_url):
    text = browser.page("jobs")
    failed, made = cells(text)[1:3]
    assert (failed[0], failed[1], failed[4]) == ("fails", "FAILURE", "hand")
    assert (made[0], made[1], made[4]) == (
        "millrace/table/weather",
        "SUCCESS",
        f"schedule {HOSTILE}, partition 2026-07-01",
    )
    assert "<script>" not in text
    assert text.count(f'href="{dagster_url}/runs/') == 2


def test_a_topic_links_to_the_assets_that_dagster_has(browser, dagster_url):
    assert f'href="{dagster_url}/assets/millrace/table/weather"' in browser.page("topic?name=weather")
    assert f'href="{dagster_url}/assets' not in browser.page("topic?name=orders"), "of another cluster"


def test_a_dagster_that_does_not_answer_is_named_on_jobs_and_breaks_no_page():
    url = f"http://127.0.0.1:{free_port()}"
    properties = {**PROPERTIES, "admin.console": "read-only", "admin.console.dagster.url": url}
    with LocalBroker(properties=properties) as broker:
        broker.create_topic("weather")
        browser = Browser(broker.admin_url)
        assert f"{url}/graphql" in unescape(browser.page("jobs"))
        assert "/assets/" not in browser.page("topic?name=weather")


def test_without_an_address_jobs_says_which_property_names_it():
    with LocalBroker(properties={**PROPERTIES, "admin.console": "read-only"}) as broker:
        assert "admin.console.dagster.url" in Browser(broker.admin_url).page("jobs")
