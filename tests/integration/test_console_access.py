"""Who may open the console and as whom it asks the broker, and that it ends when its broker does."""

import http.client
import json
import os
import re
import signal
import uuid

import javaproperties
import pytest

from millrace.client import Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.testing.broker import BrokerProcess
from millrace.testing.local_broker import LocalBroker, secured_listener
from millrace.uuids import encode_id
from millrace_support.console_pages import PROPERTIES, Browser, cells, console_of


@pytest.fixture
def guarded():
    """A broker whose endpoint has a token, and a read-only console."""
    properties = {**PROPERTIES, "admin.console": "read-only", "admin.token": "hush"}
    with LocalBroker(properties=properties) as started:
        yield started


def test_the_token_opens_it_and_it_is_read_only(guarded):
    browser = Browser(guarded.admin_url)
    for path in (
        *("", "topics", "messages?topic=t", "tail", "jobs", "static/", "login/", "/login", "login%2F..%2Ftopics"),
        *(
            "static/../topics",
            "static/%2e%2e/topics",
            "static/..%2Ftopics",
            "static/x/../../topics",
            "static%2Fconsole.css",
        ),
    ):
        status, headers, _ = browser.ask(path)
        assert (status, headers["Location"]) == (303, "/console/login"), path
    assert browser.status("static/console.css", {}) == 303, "a form is no style"
    assert browser.status("reset", {"id": "g", "plan": "[]"}) == 303
    assert "Token of the admin endpoint" in browser.page("login")
    assert browser.page("static/console.css")
    assert browser.ask("login", {"token": "hus"})[1]["Location"] == "/console/login?refused=1"
    assert browser.status("login", {"token": "hush"}, Origin="http://evil.example") == 403
    status, headers, _ = browser.ask("login", {"token": "hush"})
    cookie = headers["Set-Cookie"]
    assert status == 303
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= set(cookie.split("; "))

    inside = Browser(guarded.admin_url, Cookie=cookie.partition(";")[0])
    guarded.produce("t", [b"x"])
    with Cluster(guarded.bootstrap) as cluster:
        Groups(cluster).commit("g", {("t", 0): GroupOffset(1, "")})
        text = inside.page("reset?id=g&topic=t&target=earliest")
        assert "The console is read-only here" in text
        assert "Set these offsets" not in text
        [token] = re.findall(r'name="form_token" value="([^"]*)"', text)
        form = {"form_token": token, "id": "g", "plan": '[["t", 0, 1, 0]]'}
        assert inside.status("reset", form) == 403
        assert {one.offset for one in Groups(cluster).offsets("g").values()} == {1}

    assert Browser(guarded.admin_url, Authorization="Bearer hush").page("topics")
    assert inside.status("logout", {}) == 403
    status, headers, _ = inside.ask("logout", {"form_token": token})
    port = guarded.admin_url.rpartition(":")[2]
    assert (status, headers["Set-Cookie"].startswith(f'millrace_console_{port}="";')) == (303, True)
    metrics = http.client.HTTPConnection(guarded.admin_url.partition("://")[2], timeout=60)
    metrics.request("GET", "/metrics", headers={"Cookie": cookie.partition(";")[0]})
    assert metrics.getresponse().status == 401, "a session is for the console alone"


def test_a_killed_broker_takes_its_console_along(guarded):
    Browser(guarded.admin_url, Authorization="Bearer hush").page("")
    child = console_of(guarded)
    [socket] = {one.laddr for one in child.net_connections("unix") if one.laddr.endswith("/socket")}
    os.kill(guarded.pid, signal.SIGKILL)
    child.wait(60)
    assert not os.path.exists(os.path.dirname(socket))


def test_a_broker_that_stops_leaves_nothing_behind(guarded):
    Browser(guarded.admin_url, Authorization="Bearer hush").page("")
    child = console_of(guarded)
    [socket] = {one.laddr for one in child.net_connections("unix") if one.laddr.endswith("/socket")}
    assert os.stat(os.path.dirname(socket)).st_mode & 0o077 == 0
    assert guarded.stop() == 0
    assert not child.is_running()
    assert not os.path.exists(os.path.dirname(socket))


def test_it_is_off_unless_it_is_asked_for():
    with LocalBroker(properties=PROPERTIES) as started:
        browser = Browser(started.admin_url)
        assert {browser.status(path) for path in ("", "topics", "login", "static/console.css")} == {404}


def test_it_is_no_way_around_access_control_lists(tmp_path):
    """The console is the user ANONYMOUS here, who may read one of two topics."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    rights = [
        {"principal": "User:ANONYMOUS", "permissionType": "Allow", "operation": operation, "host": "*"}
        for operation in ("Describe", "Read")
    ]
    topics = {name: {"topic_id": uuid.uuid4().hex, "partitions": 1, "config": {}} for name in ("shown", "hidden")}
    document = {
        "version": 1,
        "cluster_id": encode_id(uuid.uuid4()),
        "topics": topics,
        "acls": {"Topic:LITERAL:shown": rights},
    }
    (data_dir / "metadata.json").write_text(json.dumps(document))
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties = {"admin.console": "full", "authorizer.class.name": authorizer, "super.users": "User:admin"}
    with LocalBroker(str(data_dir), properties={**PROPERTIES, **properties}) as started:
        assert Browser(started.admin_url).ask("topics")[1]["Location"] == "/console/login"
        browser = Browser(started.admin_url, Authorization=f"Bearer {started.admin_token}")
        assert [row[0] for row in cells(browser.page("topics"))[1:]] == ["shown"]
        assert browser.page("messages?topic=shown")
        assert browser.status("topic?name=hidden") in (404, 502)
        assert browser.status("messages?topic=hidden") in (404, 502)
        assert browser.status("record?topic=hidden&partition=0&offset=0") in (404, 502)
        assert "There are no groups yet" in browser.page("groups")
        for page in ("acls", "group?id=g", "reset?id=g&topic=shown&target=earliest"):
            status, _, text = browser.ask(page)
            assert (status, "uthoriz" in text) == (502, True), page
        [token] = set(re.findall(r'name="form_token" value="([^"]*)"', browser.page("create-topic")))
        for path, fields in (
            ("create-topic", {"name": "made"}),
            ("produce", {"topic": "shown", "value": "x", "confirmed": "1"}),
        ):
            status, _, text = browser.ask(path, {"form_token": token, **fields})
            assert (status, "uthoriz" in text) == (400, True), path
        assert [row[0] for row in cells(browser.page("topics"))[1:]] == ["shown"]
        text = browser.page("")
        assert str(data_dir) not in text, "the broker's folders are not told"
        assert "authoriz" in text


def test_where_nobody_logs_in_another_host_name_is_refused():
    """A page of another site could send this name if its own name resolved to this machine (DNS rebinding)."""
    with LocalBroker(properties={**PROPERTIES, "admin.console": "read-only"}) as started:
        browser = Browser(started.admin_url)
        assert browser.page("topics")
        assert browser.status("", Host="evil.example") == 403


def test_a_console_that_may_change_something_wants_a_login_on_loopback_too():
    with LocalBroker(properties={**PROPERTIES, "admin.console": "full"}) as started:
        assert Browser(started.admin_url).ask("topics")[1]["Location"] == "/console/login"
        assert Browser(started.admin_url).ask("login", {"token": started.admin_token})[1]["Location"] == "/console/"


def test_it_logs_in_as_the_user_of_its_client_properties(tmp_path):
    secured = secured_listener(tmp_path, "SASL_SSL")
    file = tmp_path / "console.properties"
    file.write_text(javaproperties.dumps(secured.client_properties))
    properties = {**PROPERTIES, "admin.console": "read-only", "admin.console.client.config": str(file)}
    with BrokerProcess(
        tmp_path / "data", properties=properties, protocol=secured.protocol, config=secured.config
    ) as started:
        assert started.bootstrap in Browser(started.admin_url).page("")
