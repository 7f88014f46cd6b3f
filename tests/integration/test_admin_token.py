"""The admin endpoint's token, as HTTP clients send it, and what probes are told without it."""

import asyncio
import http.client
import json

import pytest

from millrace.clock import SystemClock
from millrace_broker.admin.endpoint import AdminEndpoint
from millrace_broker.admin.guard import Guard
from millrace_broker.admin.health import Health

WELL = Health((), (), ())
LOADING = Health((), (), ("secret words",))


async def asked(token, header, path="/healthz", health=WELL):
    """(status, the body) of an answer."""
    endpoint = AdminEndpoint(SystemClock(), lambda: health, lambda: {"broker_id": 1})
    host, port = await endpoint.start("127.0.0.1", 0, Guard(token))
    try:
        return await asyncio.to_thread(get, host, port, path, header)
    finally:
        await endpoint.stop()


def get(host, port, path, header):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", path, headers={} if header is None else {"Authorization": header})
    try:
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("token", "header", "status"),
    [
        ("hush", b"Bearer hush", 200),
        ("hush", b"Bearer hu", 401),
        ("hush", "Bearer hüsh".encode(), 401),
        ("hush", b"Bearer \xff", 401),
        ("hüsh", "Bearer hüsh".encode(), 200),
    ],
)
def test_only_the_token_opens_it_whatever_its_characters(token, header, status):
    assert asyncio.run(asked(token, header))[0] == status


@pytest.mark.parametrize("path", ["/metrics", "/strays", "/healthz/", "/nothing"])
def test_without_the_token_nothing_else_is_told(path):
    assert asyncio.run(asked("hush", None, path))[0] == 401


@pytest.mark.parametrize(
    ("path", "health", "status", "word"),
    [
        ("/healthz", WELL, 200, "ok"),
        ("/readyz", WELL, 200, "ok"),
        ("/healthz", LOADING, 200, "ok"),
        ("/readyz", LOADING, 503, "failed"),
    ],
)
def test_a_probe_without_the_token_is_told_the_status_alone(path, health, status, word):
    found, body = asyncio.run(asked("hush", None, path, health))
    assert (found, json.loads(body)) == (status, {"status": word})


def test_with_the_token_a_probe_is_told_all():
    _, body = asyncio.run(asked("hush", "Bearer hush", "/readyz", LOADING))
    assert json.loads(body)["reasons"] == ["secret words"]
