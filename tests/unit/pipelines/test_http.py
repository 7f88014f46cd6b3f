"""JSON over HTTP from services: what a request sends, and the errors that name its address and what to look at."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from millrace.errors import PlatformError
from millrace_pipelines.http import ServiceUnreachableError, get_bytes, get_json, notify, post_json

ADVICE = "is it up?"


class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content = {
            "/echo": (200, body or b"null"),
            "/wrong": (500, b"the disk is full"),
            "/moved": (302, b""),
            "/text": (200, b"no JSON"),
            "/secret": (404, b"there is no /secret"),
        }[self.path.partition("?")[0]]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/echo")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.do_POST()

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_answer_is_json(url):
    assert post_json(f"{url}/echo", {"a": [1, None]}, timeout_s=60, advice=ADVICE) == {"a": [1, None]}
    assert post_json(f"{url}/echo", timeout_s=60, advice=ADVICE) is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [("wrong", "status 500: b'the disk is full'"), ("moved", "status 302: b''"), ("text", "the answer is no JSON: .*")],
)
def test_an_error_names_the_address_and_what_to_look_at(url, path, problem):
    with pytest.raises(ServiceUnreachableError, match=rf"^{url}/{path}: {problem}; is it up\?$"):
        post_json(f"{url}/{path}", timeout_s=60, advice=ADVICE)


def test_nobody_answers():
    with pytest.raises(PlatformError, match=r"^http://127\.0\.0\.1:1/x: ConnectError: .*; is it up\?$"):
        post_json("http://127.0.0.1:1/x", timeout_s=60, advice=ADVICE)


def test_a_proxy_is_used_only_where_the_caller_says_so(url, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert post_json(f"{url}/echo", 1, timeout_s=60, advice=ADVICE, use_proxy=False) == 1
    with pytest.raises(ServiceUnreachableError, match="ConnectError"):
        post_json(f"{url}/echo", 1, timeout_s=60, advice=ADVICE)


def test_json_is_sent_as_such(url):
    assert json.dumps(post_json(f"{url}/echo", {"q": "ü"}, timeout_s=60, advice=ADVICE)) == '{"q": "\\u00fc"}'


def test_a_get_request_has_no_body(url):
    assert get_json(f"{url}/echo", timeout_s=60, advice=ADVICE) is None
    with pytest.raises(ServiceUnreachableError, match="status 500"):
        get_json(f"{url}/wrong", timeout_s=60, advice=ADVICE)


def test_an_answer_that_is_no_json_is_bytes(url):
    assert get_bytes(f"{url}/text", timeout_s=60, advice=ADVICE) == b"no JSON"
    with pytest.raises(ServiceUnreachableError, match=r"status 302: b''; is it up"):
        get_bytes(f"{url}/moved", timeout_s=60, advice=ADVICE)


def test_a_notice_is_taken_whatever_the_answer_says(url):
    notify(f"{url}/text", {"text": "a"}, timeout_s=60, advice=ADVICE)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("{}/secret", "status 404"),
        ("{}/moved?secret", "status 302"),
        ("{}/wrong#secret", "status 500"),
        ("http://127.0.0.1:1/secret", "ConnectError"),
        ("http://secret:secret@127.0.0.1:1/secret", "ConnectError"),
        ("http://127.0.0.1:1/\x00secret", "InvalidURL"),
    ],
)
def test_of_a_secret_address_only_the_host_is_shown(url, address, problem, caplog):
    caplog.set_level("DEBUG")
    with pytest.raises(ServiceUnreachableError) as failed:
        notify(address.format(url), {"text": "a"}, timeout_s=60, advice=ADVICE)
    assert str(failed.value) == f"127.0.0.1 did not take the request: {problem}; is it up?"
    assert "secret" not in caplog.text


def test_the_log_of_a_request_that_succeeds_shows_no_address(url, caplog):
    caplog.set_level("DEBUG")
    notify(f"{url}/echo", {"text": "a"}, timeout_s=60, advice=ADVICE)
    assert "echo" not in caplog.text
