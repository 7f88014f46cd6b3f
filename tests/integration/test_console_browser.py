"""A person looks at a cluster in the console's pages, in a real browser: without JavaScript, with it, and by keyboard.

The pictures of the pages, light and dark, wide and narrow, lie in the folder that MILLRACE_PICTURES names, or else in
pytest's temporary folder.
"""

import http.client
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from millrace.client import Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.records.record import NewRecord
from millrace.testing.local_broker import LocalBroker
from millrace_support.chromium import VARIABLE, chromium_page, find_chromium
from millrace_support.loads import Loads

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        CHROMIUM is None, reason=f"there is no Chromium: `make browser` installs Debian's, or {VARIABLE} names one"
    ),
]

PICTURES = "MILLRACE_PICTURES"
TOKEN = "hush"
PATIENCE_MS = 120_000
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
PROPERTIES = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
PAGES = {
    "brokers": "",
    "topics": "topics",
    "topic": "topic?name=weather",
    "messages": "messages?topic=weather",
    "record": "record?topic=weather&partition=0&offset=3",
    "groups": "groups",
    "group": "group?id=reports",
    "reset": "reset?id=reports&topic=weather&target=earliest",
    "transactions": "transactions",
    "acls": "acls",
    "tables": "tables",
    "table": "table?name=events",
    "dead-letters": "dead-letters?name=events",
    "jobs": "jobs",
    "create-topic": "create-topic",
    "produce": "produce?topic=weather",
    "setting": "setting?topic=weather&name=retention.ms",
    "error": "topic?name=nothing",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("warehouse")
    Loads(str(warehouse / "events")).load((0, 4), [0, 1, 2], dead=[3])
    properties = {"admin.console": "full", "admin.console.warehouse": str(warehouse), "admin.token": TOKEN}
    with LocalBroker(properties={**PROPERTIES, **properties}) as started:
        started.create_topic("weather", 2)
        cities = ("Wien", "Graz", "Linz", "Bregenz")
        readings = [
            NewRecord(json.dumps({"city": city, "degrees": number}).encode(), city.encode(), 1_782_000_000_000 + number)
            for number, city in enumerate(cities * 10)
        ]
        started.produce("weather", readings, partition=0)
        started.produce("weather", [NewRecord(HOSTILE.encode(), HOSTILE.encode())], partition=1)
        with Cluster(started.bootstrap) as cluster:
            Groups(cluster).commit("reports", {("weather", 0): GroupOffset(10, "")})
        yield started


@pytest.fixture(scope="module")
def browser():
    with chromium_page(CHROMIUM) as page:
        yield page.context.browser


@contextmanager
def opened(browser, broker, **options):
    """A page that is logged in, of a browser window of its own; what goes wrong on it fails the test."""
    with browser.new_context(base_url=f"{broker.admin_url}/console/", **options) as context:
        context.add_cookies([session(broker)])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        troubles = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        yield page
        assert [one for one in troubles if not re.search("status of 40[04]", one)] == []


def session(broker):
    """The cookie that a login gives."""
    address = broker.admin_url.partition("://")[2]
    connection = http.client.HTTPConnection(address, timeout=120)
    body = f"token={TOKEN}"
    connection.request("POST", "/console/login", body, {"Content-Type": "application/x-www-form-urlencoded"})
    cookie = connection.getresponse().headers["Set-Cookie"]
    name, value = cookie.partition(";")[0].split("=", 1)
    return {"name": name, "value": value, "domain": address.rpartition(":")[0], "path": "/console"}


def test_a_person_logs_in_looks_at_a_topic_and_logs_out(browser, broker):
    with browser.new_context(base_url=f"{broker.admin_url}/console/") as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto("topics")
        page.get_by_label("Token of the admin endpoint").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.get_by_label("Token of the admin endpoint").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Brokers")
        page.get_by_role("link", name="Topics").click()
        page.get_by_label("Name contains").fill("weath")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("link", name="weather").click()
        page.get_by_role("link", name="Messages").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Messages of weather")
        page.get_by_role("button", name="Log out").click()
        page.goto("topics")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_offsets_are_reset_without_javascript(browser, broker):
    with opened(browser, broker, java_script_enabled=False) as page:
        page.goto("group?id=reports")
        page.get_by_label("To", exact=True).select_option("offset")
        page.get_by_label("Offset, or time in UTC").fill("25")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("row", name="0 10 25 +15")).to_be_visible()
        page.get_by_role("button", name="Set these offsets").click()
        expect(page.get_by_role("status")).to_have_text("The offsets are set.")
        expect(page.get_by_role("row", name=re.compile("weather 0 25 40 15"))).to_be_visible()


def test_topics_are_made_filled_and_set_without_javascript(browser, broker):
    with opened(browser, broker, java_script_enabled=False) as page:
        page.goto("topics")
        page.get_by_role("link", name="Create a topic").click()
        page.get_by_label("Name").fill("not allowed")
        page.get_by_label("Partitions").fill("2")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_label("Partitions")).to_have_value("2")
        page.get_by_label("Name").fill("made-here")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Create it").click()
        expect(page.get_by_role("status")).to_have_text("The topic is created.")
        page.get_by_role("link", name="Append a record").click()
        page.get_by_label("Key; empty for none").fill("Wien")
        page.get_by_label("Value", exact=True).fill("two\nlines")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Append it").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Offset 0 of made-here-[01]"))
        expect(page.locator("pre", has_text="two\nlines")).to_be_visible()
        page.goto("topic?name=made-here")
        page.locator("summary").click()
        page.get_by_role("link", name="Change retention.ms").click()
        page.get_by_label("New value").fill("86400000")
        page.get_by_role("button", name="Preview", exact=True).click()
        page.get_by_role("button", name="Change it").click()
        expect(page.get_by_role("status")).to_have_text("The property is changed.")


def test_records_are_searched_without_javascript(browser, broker):
    with opened(browser, broker, java_script_enabled=False) as page:
        page.goto("messages?topic=weather")
        page.get_by_label("Partition").select_option("0")
        page.get_by_label("From").select_option("the oldest")
        page.get_by_label("Contains").fill('"degrees": 17}')
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#records tr")).to_have_count(1)
        page.locator("#records a").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Offset 17 of weather-0")


def test_new_records_are_followed_live_and_spoken_of(browser, broker):
    broker.create_topic("followed")
    with opened(browser, broker) as page:
        page.goto("messages?topic=followed")
        button, status = page.get_by_role("button", name="Follow live"), page.locator("#tail-status")
        expect(button).to_have_attribute("aria-pressed", "false")
        button.press("Space")
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(status).to_have_text("Waiting for new records")
        expect(page.get_by_text("On: new records appear at the top")).to_be_visible()
        assert page.title() == "● Messages of followed \N{EN DASH} Millrace"
        broker.produce("followed", [b"first", HOSTILE.encode()])
        expect(page.locator("#records tr")).to_have_count(2)
        expect(page.locator("#records tr").first).to_contain_text("<script>")
        expect(status).to_have_text("2 new records, the newest first")
        expect(page.locator("#no-records")).to_have_count(0)
        button.click()
        expect(status).to_have_text("Stopped")
        expect(page.get_by_text("On: new records appear at the top")).to_be_hidden()
        assert page.title() == "Messages of followed \N{EN DASH} Millrace"


@pytest.mark.parametrize("path", ["messages?topic=weather&partition=0", "dead-letters?name=events"])
def test_the_values_of_records_are_on_the_screen_of_a_phone(browser, broker, path):
    with opened(browser, broker, viewport={"width": 390, "height": 800}) as page:
        page.goto(path)
        for value in page.locator(".records tbody tr td[data-label=Value]").all():
            box = value.bounding_box()
            assert (box["x"] >= 0, box["x"] + box["width"] <= 390, box["width"] > 250) == (True, True, True)


def test_pages_refresh_themselves_but_not_under_somebodys_hands(browser, broker):
    with opened(browser, broker) as page:
        page.clock.install()
        page.goto("group?id=reports")
        committed = page.locator("section", has=page.get_by_role("heading", name="Offsets")).get_by_role("row").nth(1)
        before = committed.inner_text()

        def commit(offset):
            with Cluster(broker.bootstrap) as cluster:
                Groups(cluster).commit("reports", {("weather", 0): GroupOffset(offset, "")})

        topic = page.get_by_label("Topic", exact=True)
        topic.fill("wea")
        commit(11)
        page.clock.run_for(30_000)
        assert (committed.inner_text(), topic.input_value()) == (before, "wea")
        topic.fill("weather")
        page.locator("div[aria-labelledby=offsets]").focus()
        page.clock.run_for(10_000)
        expect(committed).to_contain_text("11")
        expect(page.locator("div[aria-labelledby=offsets]")).to_be_focused()
        page.get_by_role("button", name="Refreshes itself every 10 s").click()
        commit(12)
        page.clock.run_for(30_000)
        expect(page.get_by_role("button", name="Refresh it by itself")).to_be_visible()
        expect(committed).to_contain_text("11")
        page.goto("topics")
        expect(page.get_by_role("button", name="Refresh it by itself")).to_be_visible()
        commit(10)


def test_without_javascript_a_link_reloads_the_page(browser, broker):
    with opened(browser, broker, java_script_enabled=False) as page:
        page.goto("topics?filter=weather")
        page.get_by_role("link", name="Reload this page every 10 seconds").click()
        expect(page.get_by_label("Name contains")).to_have_value("weather")
        assert page.request.get(page.url).headers["refresh"] == "10"
        page.get_by_role("link", name="Stop to reload this page").click()
        assert "refresh" not in page.request.get(page.url).headers


def test_a_record_with_a_script_in_it_runs_nothing(browser, broker):
    with opened(browser, broker) as page:
        for path in ("messages?topic=weather&partition=1", "record?topic=weather&partition=1&offset=0"):
            page.goto(path)
            expect(page.get_by_text(HOSTILE).first).to_be_visible()
            assert "owned" not in page.title()
            assert page.locator("main script, main img").count() == 0


def test_the_keyboard_reaches_everything_in_order(browser, broker):
    with opened(browser, broker) as page:
        page.goto("topics")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        for link in ("Yours", "Internal"):
            page.keyboard.press("Tab")
            expect(page.get_by_role("link", name=link)).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_label("Name contains")).to_be_focused()
        page.keyboard.type("weather")
        page.keyboard.press("Enter")
        expect(page.get_by_role("row")).to_have_count(2)
        outline = page.get_by_role("link", name="weather").evaluate(
            "one => { one.focus(); return getComputedStyle(one).outlineStyle }"
        )
        assert outline == "solid"


UNLABELLED = """[...document.querySelectorAll("input:not([type=hidden]), select, textarea, meter, progress")]
    .filter((one) => !one.labels?.length && !one.ariaLabel).length"""
NAMELESS = """[...document.querySelectorAll("table")]
    .filter((one) => !one.caption?.textContent.trim()).length"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_what_a_screen_reader_goes_by(browser, broker, name):
    with opened(browser, broker) as page:
        page.goto(PAGES[name])
        assert page.locator("html").get_attribute("lang") == "en"
        for landmark in ("banner", "main", "contentinfo"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        expect(page.get_by_role("navigation", name="Main")).to_have_count(1)
        expect(page.locator("h1")).to_have_count(1)
        assert page.evaluate(UNLABELLED) == 0
        assert page.evaluate(NAMELESS) == 0
        assert page.locator("th:not([scope])").count() == 0
        ids = page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
        assert len(ids) == len(set(ids))


CONTRAST = """() => {
    const linear = (part) => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const parts = (text) => text.match(/[\\d.]+/g).map(Number);
    const ground = (one) => {
        for (; one; one = one.parentElement) {
            const found = parts(getComputedStyle(one).backgroundColor);
            if (found.length < 4 || found[3] > 0) return found;
        }
        return [255, 255, 255];
    };
    const poor = [];
    for (const one of document.querySelectorAll("body *")) {
        const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !one.checkVisibility()) continue;
        const [a, b] = [light(parts(getComputedStyle(one).color)), light(ground(one))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push(`${one.tagName} ${one.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    return poor;
}"""


SCROLLED_SIDEWAYS = """[...document.querySelectorAll(".scroll")]
    .filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent.trim().slice(0, 60))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_readable_light_and_dark_wide_and_narrow(browser, broker, scheme, tmp_path_factory):
    pictures = Path(os.environ.get(PICTURES) or tmp_path_factory.mktemp("pictures"))
    pictures.mkdir(parents=True, exist_ok=True)
    for width in (1200, 390):
        with opened(browser, broker, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
            for name, path in PAGES.items():
                page.goto(path)
                page.screenshot(path=pictures / f"console-{name}-{scheme}-{width}.png")
                assert page.evaluate(CONTRAST) == [], name
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                assert page.evaluate(SCROLLED_SIDEWAYS) == [], name
