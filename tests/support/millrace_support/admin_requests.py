"""Requests by which a test has a broker of its own change something, or work, at its admin endpoint."""

from __future__ import annotations

import urllib.request

from millrace.testing.broker import BrokerProcess

JSON = {"Content-Type": "application/json"}


def change_request(broker: BrokerProcess, path: str, body: bytes = b"") -> urllib.request.Request:
    """Returns a POST request with the broker's own token; a path is that of docs/maintenance.md, without a slash."""
    url = f"{broker.admin_url}/{path}"  # waits for the endpoint, and so for its token
    headers = JSON | {"Authorization": f"Bearer {broker.admin_token}"}
    return urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 -- a broker of the test
