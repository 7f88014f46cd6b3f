"""The console's pages show topics, groups, transactions and tables, and escape what clients wrote."""

import html
import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from urllib.parse import quote, urlencode

import confluent_kafka
import pytest

from millrace.client import Cluster, Groups
from millrace.client.groups import GroupOffset, describe_transactions, list_transactions
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.local_broker import LocalBroker
from millrace_ops.console.rendering import UNKNOWN
from millrace_pipelines.warehouse.ledger.ledger import TOPIC_ID_PROPERTY, TOPIC_PROPERTY
from millrace_pipelines.warehouse.stores.leases import Progress, lease
from millrace_pipelines.warehouse.tables.find import FAILED_LOADS_FILE, failures_noted
from millrace_support.clock import ManualClock
from millrace_support.console_pages import PROPERTIES, Browser, cells, console_of, shown
from millrace_support.loads import Loads
from millrace_support.waiting import until

HOSTILE = "<script>document.title = 'owned'</script>"
GROUP = f'reports "&/{HOSTILE}'
NOON_MS = 1_782_000_000_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def broker(warehouse):
    properties = {
        **PROPERTIES,
        "admin.console": "full",
        "admin.console.warehouse": str(warehouse),
    }
    with LocalBroker(properties=properties) as started:
        started.create_topic("weather", 2)
        started.create_topic("payments", 2)
        started.produce("weather", [reading(number) for number in range(30)], partition=0)
        started.produce(
            "weather",
            [
                NewRecord(HOSTILE.encode(), HOSTILE.encode(), NOON_MS, ((HOSTILE, HOSTILE.encode()),)),
                b"a",
                b"\xff\0",
            ],
            partition=1,
        )
        with Cluster(started.bootstrap) as cluster:
            Groups(cluster).commit(GROUP, {("weather", 0): GroupOffset(10, "")})
            topic_id = str(cluster.metadata(["weather"]).topic("weather").topic_id)
        loads = Loads(str(warehouse / "deep" / "weather"), {TOPIC_PROPERTY: "weather", TOPIC_ID_PROPERTY: topic_id})
        loads.load((0, 4), [0, 1, 2], dead=[3])
        yield started


def reading(number):
    return NewRecord(json.dumps({"city": "Wien", "n": number}).encode(), b"Wien", NOON_MS + 1000 * number)


@pytest.fixture(scope="module")
def browser(broker):
    return Browser(broker.admin_url, Authorization=f"Bearer {broker.admin_token}")


def test_brokers(browser, broker):
    text = browser.page("")
    assert broker.bootstrap in text
    assert str(broker.data_dir) in text
    assert "controller" in text


def test_topics_are_listed_filtered_and_sorted(browser):
    [_, found] = cells(browser.page("topics?filter=WEATH"))
    assert found[:4] == ["weather", "2", "1", "33"]
    assert [row[0] for row in cells(browser.page("topics?sort=name&order=desc"))[1:]] == sorted(
        (row[0] for row in cells(browser.page("topics"))[1:]), reverse=True
    )
    assert "No topic has that" in browser.page("topics?filter=nothing")


def test_the_topics_in_which_brokers_keep_their_state_are_apart(browser):
    yours, internal = browser.page("topics"), browser.page("topics?kind=internal")
    names = {row[0] for row in cells(yours)[1:]}
    assert "weather" in names
    assert not any(name.startswith("__") for name in names)
    assert {row[0] for row in cells(internal)[1:]} >= {"__consumer_offsets"}
    assert 'href="topics?kind=internal"' in yours
    assert 'name="kind" value="internal"' in internal, "the filter stays among them"


def test_a_topic_has_its_partitions_and_configuration(browser):
    rows = cells(browser.page("topic?name=weather"))
    assert [row[:7] for row in rows[1:3]] == [
        ["0", "1", "1", "1", "0", "30", "30"],
        ["1", "1", "1", "1", "0", "3", "3"],
    ]
    assert ["retention.ms", "604800000", "default", "Change"] in rows


def test_a_topic_links_to_its_groups_and_tables_and_back(browser):
    text = browser.page("topic?name=weather")
    assert f'href="group?{urlencode({"id": GROUP})}"' in text
    assert "lag 20" in text
    assert '<a href="table?name=deep%2Fweather">deep/weather</a>' in text
    assert 'href="topic?name=weather"' in browser.page("table?name=deep/weather")
    assert 'href="topic?name=weather"' in browser.page(f"group?{urlencode({'id': GROUP})}")
    unused = browser.page("topic?name=payments")
    assert "None has committed offsets in it." in unused
    assert "None in the warehouse is made of it." in unused


def test_what_producers_wrote_is_text_and_nothing_else(browser):
    """The page of a record with a script in key, value and headers, and of a group with one in its name."""
    for path in (
        "messages?topic=weather&partition=1",
        "record?topic=weather&partition=1&offset=0",
        "groups",
        f"group?{urlencode({'id': GROUP})}",
        f"reset?{urlencode({'id': GROUP, 'topic': 'weather', 'target': 'earliest'})}",
        f"messages?{urlencode({'topic': 'weather', 'search': HOSTILE})}",
        f"topics?{urlencode({'filter': HOSTILE})}",
    ):
        text = browser.page(path)
        assert "<script>" not in text, path
        assert "&lt;script&gt;" in text, path
    assert "<script>" not in browser.ask(quote(HOSTILE))[2]


def test_every_answer_keeps_scripts_of_others_out(browser):
    for path in ("", "messages?topic=weather", "nothing", "topic?name=nothing", "static/console.js", "tail"):
        _, headers, _ = browser.ask(path)
        assert "default-src 'none'; style-src 'self'; script-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert browser.ask("topics")[1]["Cache-Control"] == "no-store"


def test_pages_need_nothing_from_elsewhere(browser):
    for path in ("", "topics", "messages?topic=weather"):
        assert re.findall(r'(?:src|href)="(?!/console/|[a-z-]*\?|[a-z#-]*")', browser.page(path)) == []


def test_groups_have_their_lag(browser):
    assert [GROUP, "Empty", UNKNOWN, "1", "20"] in cells(browser.page("groups"))
    rows = cells(browser.page(f"group?{urlencode({'id': GROUP})}"))
    assert rows[1] == ["weather", "0", "10", "30", "20", UNKNOWN]


def test_a_reset_is_previewed_and_done_as_it_was_shown(broker, browser):
    group = "reset-by-a-page"
    with Cluster(broker.bootstrap) as cluster:
        groups = Groups(cluster)
        groups.commit(group, {("weather", 0): GroupOffset(10, "")})

        def committed():
            return {key: one.offset for key, one in groups.offsets(group).items()}

        path = f"reset?{urlencode({'id': group, 'topic': 'weather', 'target': 'time', 'value': '2026-06-21T00:00:05'})}"
        text = browser.page(path)
        assert cells(text)[1:] == [["0", "10", "5", "-5"], ["1", UNKNOWN, "1", UNKNOWN]]
        assert committed() == {("weather", 0): 10}

        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text))
        form = {name: unescape(value) for name, value in form.items()}
        assert browser.status("reset", {**form, "form_token": "another"}) == 403
        assert browser.status("reset", {"id": group, "plan": form["plan"]}) == 403
        assert browser.status("reset", form, Origin="http://evil.example") == 403
        assert browser.status("reset", {**form, "plan": "[]"}) == 400
        assert committed() == {("weather", 0): 10}

        status, headers, _ = browser.ask("reset", form)
        assert (status, headers["Location"]) == (303, f"/console/group?id={group}&done=1")
        assert committed() == {("weather", 0): 5, ("weather", 1): 1}
        status, _, text = browser.ask("reset", form)
        assert status == 400
        assert "the committed offset is 5 by now, not 10 as it was shown" in text


def test_a_group_with_members_is_not_reset(broker, browser):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "alive"})
    consumer.subscribe(["weather"])
    try:
        until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        path = f"reset?{urlencode({'id': 'alive', 'topic': 'weather', 'target': 'latest'})}"
        text = browser.page(path)
        assert "stop them first" in text
        assert "Set these offsets" not in text
        assert len(cells(browser.page("group?id=alive"))) > 3
        page = browser.page(f"reset?id={quote(GROUP)}&topic=weather&target=latest")
        [token] = set(re.findall(r'name="form_token" value="([^"]*)"', page))
        form = {"form_token": token, "id": "alive", "plan": '[["weather", 0, null, 0]]'}
        status, _, text = browser.ask("reset", form)
        assert (status, "who would go on from their own positions" in text) == (400, True)
    finally:
        consumer.close()


def test_transactions(broker, browser):
    settings = {"transactional.id": f"t-{HOSTILE}", "transaction.timeout.ms": 600_000}
    broker.produce("payments", [b"before"] * 3, partition=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", b"open", partition=1)
    producer.flush()
    [row] = cells(browser.page("transactions"))[1:]
    assert (row[0], row[1], row[6]) == (f"t-{HOSTILE}", "Ongoing", "payments-1")
    assert "open transaction from 3 on" in browser.page("topic?name=payments")
    assert "1@3" in [at for at, _, _ in shown(browser, "partition=1", "payments")]
    assert "1@3" not in [at for at, _, _ in shown(browser, "partition=1&committed=1", "payments")]
    producer.abort_transaction()
    [row] = cells(browser.page("transactions?filter=complete"))[1:]
    assert row[1] == "CompleteAbort"


def test_a_cluster_without_an_authorizer_says_so(browser):
    assert "has no authorizer" in browser.page("acls")


def test_tables_their_ledger_dead_letters_and_audit(browser):
    assert cells(browser.page("tables"))[1][:6] == ["deep/weather", "weather", "3", "1", "29", "1"]
    text = browser.page("table?name=deep/weather")
    assert ["0", "0", "4", "4", "26"] in cells(text)
    assert [row[2:5] for row in cells(text) if "load" in row] == [["load", "3", "1"]]
    assert cells(browser.page("dead-letters?name=deep/weather"))[1][:3] == ["unclassified", "1", "1"]
    until(lambda: "Under way" not in browser.page("audit?name=deep/weather"))
    assert "each offset of the ledger is there once" in browser.page("audit?name=deep/weather")
    assert "complete" in browser.page("table?name=deep/weather")


@pytest.mark.parametrize("name", ["nothing", "../", "deep", "/etc", "deep/weather/../weather", HOSTILE])
def test_a_table_that_the_folder_does_not_have_is_not_found(browser, name):
    assert browser.status(f"table?{urlencode({'name': name})}") == 404
    assert browser.status(f"audit?{urlencode({'name': name})}") == 404


def sentences_of_emptiness(browser):
    """How many sections of the page of jobs are empty, and say what would be there."""
    return len(
        re.findall(r"<p>None( is under way)?\. [^<]*(<code>[^<]*</code>[^<]*)*appears here", browser.page("jobs"))
    )


def test_jobs_and_how_far_they_are(browser, warehouse):
    assert sentences_of_emptiness(browser) == 5
    table, fs = str(warehouse / "deep" / "weather"), OsFileSystem()
    with lease(table, "load-1", fs) as held, lease(table, "vacuum-1", fs):
        held.note(Progress(NOON_MS, 3, 12, 4567))
        load, vacuum = cells(browser.page("jobs"))[1:]
    assert load == ["deep/weather", "load-1", "2026-06-21 00:00:00", "3 3 of 12", "4,567"]
    assert vacuum[:2] + vacuum[3:] == ["deep/weather", "vacuum-1", UNKNOWN, UNKNOWN]
    assert sentences_of_emptiness(browser) == 5


def test_a_lease_that_can_not_be_read_is_named_beside_those_that_can(browser, warehouse):
    table, fs = warehouse / "deep" / "weather", OsFileSystem()
    with lease(str(table), "load-1", fs):
        pass
    unreadable = table / "_running" / "load-2.lease"
    unreadable.mkdir()  # root can't read a folder as a file, either
    try:
        assert (
            f"What writes into deep/weather can't be read: [Errno 21] Is a directory: '{unreadable}'"
            in html.unescape(browser.page("jobs"))
        )
    finally:
        unreadable.rmdir()


def pages_of_failures(browser):
    """What the pages say of the table's loads that fail: the row on Jobs, the name on Tables, the table's own page."""
    [jobs] = cells(browser.page("jobs"))[1:] or [[]]
    [section] = re.findall(
        r'<section aria-labelledby="failing">(.*?)</section>', browser.page("table?name=deep/weather"), re.DOTALL
    ) or [""]
    paragraphs = [unescape(re.sub(r"<[^>]*>", "", one)) for one in re.findall(r"<p.*?</p>", section, re.DOTALL)]
    return jobs, cells(browser.page("tables"))[1][0], paragraphs


def test_loads_that_fail_are_on_three_pages_until_one_succeeds(browser, warehouse):
    assert pages_of_failures(browser) == ([], "deep/weather", [])
    table, clock = str(warehouse / "deep" / "weather"), ManualClock(NOON_MS)

    def fail(error):
        with pytest.raises(type(error)), failures_noted(table, OsFileSystem(), clock):
            raise error

    fail(ValueError("the first"))
    assert pages_of_failures(browser)[2] == ["The newest load failed at 2026-06-21 00:00:00:", "ValueError: the first"]
    clock.advance(60_000)
    fail(OSError(HOSTILE))
    jobs, name, paragraphs = pages_of_failures(browser)
    assert jobs == ["deep/weather", "2026-06-21 00:00:00", "2", "2026-06-21 00:01:00", f"OSError: {HOSTILE}"]
    assert name == "deep/weather Loads fail"
    assert paragraphs == [
        "The newest 2 loads failed, the first of them at 2026-06-21 00:00:00, the last at 2026-06-21 00:01:00:",
        f"OSError: {HOSTILE}",
    ]
    for page in ("jobs", "table?name=deep/weather"):
        assert "<script>" not in browser.page(page)
    with failures_noted(table, OsFileSystem(), clock):
        pass
    assert pages_of_failures(browser) == ([], "deep/weather", [])


@pytest.mark.parametrize("content", [b"", b'{"times": 3, "first_ms": 1', b"\xff\0" * 40_000])
def test_a_damaged_note_of_failures_breaks_no_page(browser, warehouse, content):
    note = warehouse / "deep" / "weather" / FAILED_LOADS_FILE
    note.write_bytes(content)
    jobs, name, [paragraph] = pages_of_failures(browser)
    note.unlink()
    assert jobs[:4] == ["deep/weather", UNKNOWN, UNKNOWN, UNKNOWN]
    assert name == "deep/weather Loads fail"
    assert paragraph == jobs[4]
    assert f"{FAILED_LOADS_FILE} in the table's folder can't be read" in paragraph


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nothing", 404),
        ("static/nothing", 404),
        ("static/../server.py", 404),
        ("topic?name=nothing", 404),
        ("topic", 400),
        ("group?id=nothing", 404),
        ("messages?topic=weather&partition=x", 400),
        ("messages?topic=weather&partition=7", 404),
        ("messages?topic=weather&position=sideways", 400),
        ("messages?topic=weather&position=offset&value=-1", 400),
        ("messages?topic=weather&position=time&value=noon", 400),
        ("record?topic=weather&partition=0&offset=99999", 404),
        (f"reset?{urlencode({'id': GROUP, 'topic': 'weather', 'target': 'sideways'})}", 400),
        (f"reset?{urlencode({'id': GROUP, 'topic': 'weather', 'target': 'offset', 'value': 'x'})}", 400),
    ],
)
def test_a_slip_gets_a_page_that_says_what_is_wrong(browser, path, status):
    assert browser.status(path) == status


def test_a_console_that_died_is_started_again(broker, browser):
    browser.page("topics")
    os.kill(console_of(broker).pid, signal.SIGKILL)
    until(lambda: browser.status("topics") == 200)


def test_transactions_are_described_by_their_coordinators(broker):
    with Cluster(broker.bootstrap) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "described"})
        producer.init_transactions()
        [idle] = describe_transactions(cluster, ["described", "nobody"])
        assert (idle.state, idle.started_ms, idle.partitions) == ("Empty", None, ())
        producer.begin_transaction()
        producer.produce("payments", b"open", partition=1)
        producer.flush()
        [open_] = describe_transactions(cluster, ["described"])
        assert (open_.state, open_.partitions, open_.timeout_ms) == ("Ongoing", (("payments", 1),), 60_000)
        assert open_.started_ms > NOON_MS
        assert ("described", open_.producer_id, "Ongoing") in list_transactions(cluster)
        producer.abort_transaction()


def test_more_pages_than_can_be_made_at_one_time_are_told_so(broker, browser):
    with ThreadPoolExecutor(80) as pool:
        statuses = set(pool.map(lambda _: browser.status("groups"), range(160)))
    assert statuses <= {200, 503}
    assert browser.status("groups") == 200
