"""Which requests the admin endpoint answers, as a table."""

from itertools import product

import pytest

from millrace_broker.admin.guard import JSON, Answered, Asked, Guard, Refused, judge, without_port

OPEN, CLOSED = Guard("hush", reading_is_open=True), Guard("hush")
HERE = "127.0.0.1:9644"
RIGHT, WRONG = "Bearer hush", "Bearer hus"
READS = ("/metrics", "/strays", "/nothing")
PROBES = ("/healthz", "/readyz")
CHANGES = ("/maintenance/retention", "/maintenance/verify", "/strays/adopt", "/strays/producer-ids", "/healthz")

READINGS = [*product([OPEN, CLOSED], ["GET", "HEAD"], READS + PROBES)]
REQUESTS = [*product([OPEN, CLOSED], ["GET", "POST"], READS + PROBES + CHANGES)]


def status(guard, *asked, **headers):
    verdict = judge(guard, Asked(*asked, **headers))
    return verdict.status if isinstance(verdict, Refused) else verdict


@pytest.mark.parametrize(("guard", "method", "path"), READINGS)
def test_the_token_opens_all_reading_by_any_name(guard, method, path):
    for host in (HERE, "broker.example:9644"):
        assert status(guard, method, path, host, authorization=RIGHT) is Answered.WHOLE
        assert status(guard, method, path, host, authorization=WRONG) == 401


@pytest.mark.parametrize("path", READS + PROBES)
def test_open_reading_wants_a_name_of_loopback(path):
    for host in (HERE, "localhost:9644", "localhost", "[::1]:9644", "127.0.0.2"):
        assert status(OPEN, "GET", path, host) is Answered.WHOLE
    for host in ("evil.example:9644", "evil.example", "10.0.0.1:9644", "localhost.evil.example", ""):
        assert status(OPEN, "GET", path, host) == 403


@pytest.mark.parametrize("host", [HERE, "broker.example:9644"])
def test_without_the_token_probes_are_told_the_status_where_reading_is_not_open(host):
    assert {status(CLOSED, "GET", path, host) for path in PROBES} == {Answered.STATUS_ALONE}
    assert {status(CLOSED, "GET", path, host) for path in READS} == {401}


@pytest.mark.parametrize(("guard", "path"), [*product([OPEN, CLOSED], CHANGES)])
def test_a_change_wants_the_token_and_a_body_that_is_called_json(guard, path):
    for content_type in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"):
        assert status(guard, "POST", path, HERE, content_type=content_type) == 401
        assert status(guard, "POST", path, HERE, authorization=RIGHT, content_type=content_type) == 415
    for content_type in (JSON, "Application/JSON; charset=utf-8"):
        assert status(guard, "POST", path, HERE, content_type=content_type) == 401
        assert status(guard, "POST", path, HERE, authorization=WRONG, content_type=content_type) == 401
        assert status(guard, "POST", path, HERE, authorization=RIGHT, content_type=content_type) is Answered.WHOLE


@pytest.mark.parametrize(("guard", "method", "path"), REQUESTS)
def test_a_page_of_another_site_is_refused_whatever_it_knows(guard, method, path):
    for origin in ("https://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:9644"):
        for authorization in ("", RIGHT):
            headers = {"origin": origin, "authorization": authorization, "content_type": JSON}
            assert status(guard, method, path, HERE, **headers) == 403
    own = {"origin": f"http://{HERE}", "authorization": RIGHT, "content_type": JSON}
    assert status(guard, method, path, HERE, **own) is Answered.WHOLE


def test_a_host_has_a_port_or_none():
    assert [without_port(host) for host in ("a:1", "a", "[::1]:1", "[::1]", "")] == ["a", "a", "::1", "::1", ""]
