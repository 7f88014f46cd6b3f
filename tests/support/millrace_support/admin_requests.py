"""Requests of a test to the admin endpoint of a broker of its own, with the token that the broker has made."""

from __future__ import annotations

import urllib.request

from millrace.testing.broker import BrokerProcess

JSON = {"Content-Type": "application/json"}


def read_request(broker: BrokerProcess, path: str) -> urllib.request.Request:
    """Returns a GET request with the broker's own token, which a broker with an authorizer wants."""
    return _request(broker, path, None)


def change_request(broker: BrokerProcess, path: str, body: bytes = b"") -> urllib.request.Request:
    """Returns a POST request with the broker's own token; a path is that of docs/maintenance.md, without a slash."""
    return _request(broker, path, body)


def _request(broker: BrokerProcess, path: str, body: bytes | None) -> urllib.request.Request:
    url = f"{broker.admin_url}/{path}"  # waits for the endpoint, and so for its token
    headers = JSON | {"Authorization": f"Bearer {broker.admin_token}"}
    return urllib.request.Request(url, body, headers)  # noqa: S310 -- a broker of the test
