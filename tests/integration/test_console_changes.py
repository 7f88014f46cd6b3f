"""A console that is `full` creates topics, appends records and sets properties, once a preview is confirmed."""

import re
from html import unescape
from urllib.parse import urlencode

import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind, SimpleConsumer
from millrace.errors import UnknownTopicError
from millrace.testing.local_broker import LocalBroker
from millrace_support.console_pages import PROPERTIES, Browser

HOSTILE = "\"><script>document.title = 'owned'</script>"
PATHS = ("create-topic", "produce?topic=weather", "setting?topic=weather&name=retention.ms")


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(properties={**PROPERTIES, "admin.console": "full"}) as started:
        started.create_topic("weather", 3)
        yield started


@pytest.fixture(scope="module")
def browser(broker):
    return Browser(broker.admin_url, Authorization=f"Bearer {broker.admin_token}")


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as opened:
        yield opened


def form_on(text):
    """The hidden fields of the page's form."""
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text.partition("<main")[2])
    return {unescape(name): unescape(value) for name, value in fields}


def previewed(browser, path, fields):
    """The form of the preview of a form with these fields."""
    form = {**form_on(browser.page(path)), **fields}
    status, _, text = browser.ask(path.partition("?")[0], form)
    assert status == 200, text
    assert "Nothing is changed yet." in text
    return form_on(text), text


def refused(browser, path, fields):
    """The page that refuses a form with these fields, which has the form again."""
    form = {**form_on(browser.page(path)), **fields}
    status, _, text = browser.ask(path.partition("?")[0], form)
    assert status == 400, text
    assert "<script>" not in text
    assert "Preview" in text
    return unescape(text)


def test_a_topic_is_created_as_the_preview_has_shown(browser, cluster):
    fields = {"name": "made", "partitions": "2", "config": "retention.ms=86400000\r\ncleanup.policy=compact"}
    form, text = previewed(browser, "create-topic", fields)
    assert "86400000" in text
    assert "made" not in Admin(cluster).topics()
    status, headers, _ = browser.ask("create-topic", form)
    assert (status, headers["Location"]) == (303, "/console/topic?name=made&done=created")
    assert "The topic is created." in browser.page("topic?name=made&done=created")
    assert len(cluster.metadata(["made"]).topic("made").partitions) == 2
    properties = {one.name: one.value for one in Configs(cluster).describe(ResourceKind.TOPIC, "made")}
    assert (properties["retention.ms"], properties["cleanup.policy"]) == ("86400000", "compact")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "weather"}, "already exists"),
        ({"name": HOSTILE}, "is invalid"),
        ({"name": ""}, "invalid"),
        ({"name": "a", "partitions": "many"}, "partitions: many is no number"),
        ({"name": "a", "replicas": "3"}, "replication factor"),
        ({"name": "a", "config": f"no.such={HOSTILE}"}, "no.such"),
        ({"name": "a", "config": HOSTILE}, "document.title"),
        ({"name": "a", "config": HOSTILE.replace("=", "")}, "expected NAME=VALUE"),
    ],
)
def test_a_topic_that_the_cluster_would_refuse_has_no_preview(browser, fields, sentence):
    text = refused(browser, "create-topic", fields)
    assert sentence.lower() in text.lower()


def test_a_record_is_appended_as_the_preview_has_shown(browser, cluster):
    fields = {"key": HOSTILE, "value": f"{HOSTILE}\r\nx", "headers": f"a={HOSTILE}"}
    form, text = previewed(browser, "produce?topic=weather", fields)
    assert "<script>" not in text
    status, headers, _ = browser.ask("produce", form)
    assert status == 303
    where = re.fullmatch(r"/console/(record\?topic=weather&partition=(\d)&offset=0)", headers["Location"])
    page = browser.page(where[1])
    assert "<script>" not in page
    fetched = SimpleConsumer(cluster).fetch("weather", int(where[2]), 0)
    [record] = [one for batch in fetched.batches() for one in batch.records()]
    assert (record.key, record.value) == (HOSTILE.encode(), f"{HOSTILE}\nx".encode())
    assert record.headers == (("a", HOSTILE.encode()),)


def test_a_null_deletes_a_key(browser, cluster):
    form, text = previewed(
        browser, "produce?topic=weather", {"partition": "2", "key": "k", "value": "left out", "is_null": "1"}
    )
    assert "null" in text
    _, headers, _ = browser.ask("produce", form)
    page = browser.page(headers["Location"].removeprefix("/console/"))
    assert '<span class="kind">null</span>' in page


@pytest.mark.parametrize(
    ("topic", "fields", "sentence"),
    [
        ("weather", {"partition": "7"}, "there is no partition 7"),
        ("weather", {"headers": HOSTILE.replace("=", "")}, "expected NAME=VALUE"),
        ("__consumer_offsets", {"value": "x"}, "the brokers' own"),
    ],
)
def test_a_record_that_can_not_be_appended_has_no_preview(broker, browser, topic, fields, sentence):
    if topic.startswith("__"):
        _commit(broker)
    assert sentence in refused(browser, f"produce?topic={topic}", fields)


def _commit(broker):
    from millrace.client import Groups
    from millrace.client.groups import GroupOffset

    with Cluster(broker.bootstrap) as cluster:
        Groups(cluster).commit("g", {("weather", 0): GroupOffset(0, "")})


def retention(cluster):
    [found] = [one for one in Configs(cluster).describe(ResourceKind.TOPIC, "weather") if one.name == "retention.ms"]
    return found.value, found.source


def test_a_property_is_set_and_unset_as_the_preview_has_shown(browser, cluster):
    path = "setting?topic=weather&name=retention.ms"
    form, text = previewed(browser, path, {"value": "86400000"})
    assert "604800000 (from default)" in text
    assert retention(cluster) == ("604800000", "default")
    status, headers, _ = browser.ask("setting", form)
    assert (status, headers["Location"]) == (303, "/console/topic?name=weather&done=set")
    assert retention(cluster) == ("86400000", "topic")
    status, _, text = browser.ask("setting", form)
    assert (status, "is 86400000 by now, not as it was shown" in text) == (400, True)
    form, text = previewed(browser, path, {"value": "1", "unset": "1"})
    assert "its default" in text
    assert browser.status("setting", form) == 303
    assert retention(cluster) == ("604800000", "default")
    assert "retention.ms" in refused(browser, path, {"value": HOSTILE})
    assert browser.status("setting?topic=weather&name=no.such") == 400


@pytest.mark.parametrize("path", PATHS)
def test_a_change_takes_the_form_of_this_console(browser, cluster, path):
    name = path.partition("?")[0]
    form, _ = previewed(browser, path, {"name": "forged", "value": "1"} if name == "create-topic" else {"value": "1"})
    before = retention(cluster)
    assert browser.status(name, {**form, "form_token": "another"}) == 403
    assert browser.status(name, {key: value for key, value in form.items() if key != "form_token"}) == 403
    assert browser.status(name, form, Origin="http://evil.example") == 403
    assert browser.status(f"{path}&{urlencode(form)}" if "?" in path else f"{path}?{urlencode(form)}") == 200
    assert retention(cluster) == before
    with pytest.raises(UnknownTopicError):
        cluster.metadata(["forged"]).topic("forged")


def test_a_read_only_console_neither_offers_nor_makes_a_change():
    with LocalBroker(properties={**PROPERTIES, "admin.console": "read-only"}) as started:
        started.create_topic("weather")
        browser = Browser(started.admin_url)
        for page in ("topics", "topic?name=weather"):
            text = browser.page(page)
            assert not re.search(r'href="(create-topic|produce|setting)', text)
        for path in PATHS:
            status, _, text = browser.ask(path)
            assert (status, "read-only" in text) == (400, True)
            assert browser.status(path.partition("?")[0], {"name": "a", "topic": "weather", "confirmed": "1"}) == 403
