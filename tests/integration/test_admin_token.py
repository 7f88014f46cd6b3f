"""The admin endpoint's token, as HTTP clients send it."""

import asyncio
import http.client

import pytest

from millrace.clock import SystemClock
from millrace_broker.admin.endpoint import AdminEndpoint
from millrace_broker.admin.health import Health


async def status_with(token, header):
    endpoint = AdminEndpoint(SystemClock(), lambda: Health((), (), ()), dict)
    host, port = await endpoint.start("127.0.0.1", 0, token)
    try:
        return await asyncio.to_thread(health, host, port, header)
    finally:
        await endpoint.stop()


def health(host, port, header):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", "/healthz", headers={} if header is None else {"Authorization": header})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("token", "header", "status"),
    [
        ("hush", b"Bearer hush", 200),
        ("hush", None, 401),
        ("hush", b"Bearer hu", 401),
        ("hush", "Bearer hüsh".encode(), 401),
        ("hush", b"Bearer \xff", 401),
        ("hüsh", "Bearer hüsh".encode(), 200),
    ],
)
def test_only_the_token_opens_it_whatever_its_characters(token, header, status):
    assert asyncio.run(status_with(token, header)) == status
