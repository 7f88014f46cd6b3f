"""The message browser: records by position, searched, decoded, downloaded and followed."""

import http.client
import io
import json
import re
from html import unescape
from urllib.parse import quote, urlencode

import fastavro
import psutil
import pytest

from millrace.records.record import NewRecord
from millrace.testing.local_broker import LocalBroker
from millrace_support.console_pages import PROPERTIES, Browser, cells, shown
from millrace_support.schema_registry import SchemaRegistryServer
from millrace_support.waiting import until

HOSTILE = "<script>document.title = 'owned'</script>"
NOON_MS = 1_782_000_000_000
AVRO = {"type": "record", "name": "Reading", "fields": [{"name": "degrees", "type": "int"}]}
PROTOBUF = 'syntax = "proto3"; message Place { string city = 1; }'


def avro(degrees):
    out = io.BytesIO(b"\0" + (1).to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, AVRO, {"degrees": degrees})
    return out.getvalue()


@pytest.fixture(scope="module")
def registry():
    with SchemaRegistryServer() as server:
        server.register("weather-value", json.dumps(AVRO))
        server.register("places-value", PROTOBUF, "PROTOBUF")
        yield server


@pytest.fixture(scope="module")
def broker(registry):
    properties = {**PROPERTIES, "admin.console": "read-only", "admin.console.schema.registry": registry.url}
    with LocalBroker(properties=properties) as started:
        started.create_topic("weather", 2)
        started.produce("weather", [reading(number) for number in range(30)], partition=0)
        started.produce(
            "weather",
            [
                NewRecord(HOSTILE.encode(), HOSTILE.encode(), NOON_MS, ((HOSTILE, HOSTILE.encode()),)),
                avro(21),
                b"\xff\0",
            ],
            partition=1,
        )
        yield started


def reading(number):
    return NewRecord(json.dumps({"city": "Wien", "n": number}).encode(), b"Wien", NOON_MS + 1000 * number)


@pytest.fixture(scope="module")
def browser(broker):
    return Browser(broker.admin_url)


def test_messages_by_position(browser):
    newest = shown(browser, "partition=0")
    assert [at for at, _, _ in newest] == [f"0@{offset}" for offset in range(29, 9, -1)]
    assert newest[0][1:] == ("Wien", '{"city": "Wien", "n": 29}')
    assert shown(browser, "partition=0&position=oldest")[0][0] == "0@0"
    assert [at for at, _, _ in shown(browser, "partition=0&position=offset&value=12")][:2] == ["0@12", "0@13"]
    at_time = quote("2026-06-21T00:00:05")
    assert shown(browser, f"partition=0&position=time&value={at_time}")[0][0] == "0@5"
    assert shown(browser, "partition=0&position=offset&value=99999") == []


def test_positions_are_pasted_as_they_are_shown(browser):
    """Whatever else the form says; a page shows positions in the form that it takes."""
    assert [at for at, _, _ in shown(browser, f"value={quote('weather-0@12')}&limit=20")][:2] == ["0@12", "0@13"]
    both = quote("0@28 1@1")
    assert {at for at, _, _ in shown(browser, f"position=newest&partition=0&value={both}")} == {
        "0@28",
        "0@29",
        "1@1",
        "1@2",
    }
    text = browser.page(f"messages?topic=weather&value={quote('0@12')}")
    [following] = re.findall(r'rel="prev" href="\?([^"]*)"', text)
    assert shown(browser, unescape(following).partition("&")[2])[0][0] == "0@0"
    assert "weather-0@3" in browser.page("record?topic=weather&partition=0&offset=3")


def test_messages_go_on_to_the_next_page(browser):
    text = browser.page("messages?topic=weather&partition=0&position=oldest")
    assert 'rel="prev"' not in text
    [following] = re.findall(r'rel="next" href="\?([^"]*)"', text)
    assert [at for at, _, _ in shown(browser, unescape(following))] == [f"0@{offset}" for offset in range(20, 30)]


def test_messages_of_all_partitions_are_in_the_order_of_their_times(browser):
    assert len(shown(browser, "limit=50")) == 33
    assert [at for at, _, _ in shown(browser, "position=oldest")][:2] == ["0@0", "1@0"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("document.TITLE", ["1@0"]),
        ('"degrees": 21', ["1@1"]),
        ('"n": 17', ["0@17"]),
        ("nowhere", []),
        ("n=17", ["0@17"]),
        ("city=Wien n>=3 n<5", ["0@4", "0@3"]),
        ("degrees>20", ["1@1"]),
        ("n=-1", []),
    ],
)
def test_messages_are_searched_in_what_is_shown(browser, search, found):
    assert [at for at, _, _ in shown(browser, urlencode({"search": search}))] == found


def downloaded(browser, query):
    """The lines of a download, and its headers."""
    status, headers, text = browser.ask(f"download?{query}")
    assert status == 200, text
    return [json.loads(line) for line in text.splitlines()], headers


def test_records_are_downloaded_as_consume_prints_them(browser):
    lines, headers = downloaded(browser, "topic=weather&position=oldest")
    assert [(one["partition"], one["offset"]) for one in lines] == [
        *((0, offset) for offset in range(30)),
        *((1, offset) for offset in range(3)),
    ]
    assert lines[0] == {
        "topic": "weather",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": NOON_MS,
        "key": "Wien",
        "value": '{"city": "Wien", "n": 0}',
        "headers": [],
    }
    assert (lines[30]["value"], lines[32]["value"]) == (HOSTILE, {"base64": "/wA="})
    assert headers["Content-Disposition"] == 'attachment; filename="weather.ndjson"'
    assert headers["Content-Type"].startswith("application/x-ndjson")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    found, _ = downloaded(browser, "topic=weather&search=" + quote("n>=28"))
    assert [one["offset"] for one in found] == [28, 29]
    assert browser.status("download?topic=nothing") == 404
    assert browser.status("download?topic=weather&partition=x") == 400


def test_a_download_is_bounded_says_where_it_ended_and_is_held_by_nobody(broker, browser):
    """The broker passes it on as it comes: its memory does not grow by the file."""
    broker.create_topic("many")
    record = NewRecord(b"x" * 100_000)
    for _ in range(9):
        broker.produce("many", [record] * 50)
    before = psutil.Process(broker.pid).memory_info().rss
    lines, _ = downloaded(browser, "topic=many&position=oldest")
    *records, last = lines
    assert 300 < len(records) < 450
    assert last["positions"] == f"many-0@{len(records)}"
    rest, _ = downloaded(browser, f"topic=many&value={quote(last['positions'])}")
    assert len(records) + len(rest) == 450
    assert psutil.Process(broker.pid).memory_info().rss - before < 20 << 20


def test_a_browser_that_goes_away_ends_its_download(broker, browser):
    for _ in range(8):  # more than are served at one time
        connection = http.client.HTTPConnection(broker.admin_url.partition("://")[2], timeout=60)
        connection.request("GET", "/console/download?topic=many&position=oldest", headers=browser.headers)
        connection.getresponse().read(1000)
        connection.close()
    until(lambda: browser.status("topics") == 200)


def test_values_are_decoded(browser):
    values = {at: value for at, _, value in shown(browser, "partition=1")}
    assert values["1@1"].startswith('{"degrees": 21}')
    assert values["1@2"].startswith("000000  ff 00")
    assert "&#34;degrees&#34;: 21" in browser.page("record?topic=weather&partition=1&offset=1")


def test_protobuf_is_decoded_and_a_schema_that_is_not_there_is_named(broker, browser):
    broker.produce("places", [b"\0\0\0\0\2\0\n\4Graz", b"\0\0\0\0\7\0\xff"])
    [unknown, place] = cells(browser.page("messages?topic=places"))[1:]
    assert place[3].startswith('{"city": "Graz"}')
    assert "its schema 7 can't be used" in unknown[3]


def test_large_values_do_not_make_a_large_page(broker, browser):
    values = [b"x" * 900_000, json.dumps({"a": ["y" * 9] * 60_000}).encode(), b"\xff" * 900_000]
    broker.produce("large", values * 5)
    text = browser.page("messages?topic=large")
    assert len(text) < 60_000
    assert len(browser.page("record?topic=large&partition=0&offset=0")) < 300_000


def test_the_tail_has_what_came_since(broker, browser):
    broker.create_topic("followed")
    broker.produce("followed", [b"before"])
    [since] = re.findall(r'data-from="([^"]*)"', browser.page("messages?topic=followed"))
    tail = "tail?topic=followed&search=er&from="
    assert cells(browser.page(tail + quote(unescape(since)))) == []
    broker.produce("followed", [b"after", b"other", b"no"])
    text = browser.page(tail + quote(unescape(since)))
    assert [row[3] for row in cells(text)] == ["after", "other"]
    [since] = re.findall(r'data-from="([^"]*)"', text)
    assert cells(browser.page(tail + quote(unescape(since)))) == []


def test_the_tail_of_several_partitions_leaves_nothing_out(broker, browser):
    broker.create_topic("wide", 3)
    [since] = re.findall(r'data-from="([^"]*)"', browser.page("messages?topic=wide"))
    for partition in range(3):
        broker.produce("wide", [b"%d-%d" % (partition, number) for number in range(70)], partition=partition)
    followed = []
    while True:
        text = browser.page(f"tail?topic=wide&from={quote(unescape(since))}")
        if not cells(text):
            break
        assert len(cells(text)) <= 100
        followed += [row[3] for row in cells(text)]
        [since] = re.findall(r'data-from="([^"]*)"', text)
    assert sorted(followed) == sorted(f"{partition}-{number}" for partition in range(3) for number in range(70))


@pytest.mark.parametrize("since", ["", "x", "[]", "[[0]]", '[["0",0]]', "[[0,-1]]", "[" * 5000, "[[9,0]]"])
def test_a_tail_of_nonsense_is_refused(browser, since):
    assert browser.status(f"tail?topic=weather&from={quote(since)}") in (400, 404)
