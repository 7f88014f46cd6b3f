"""The console's pages as a browser asks for them, without a browser, and the process behind them."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import urlencode

import psutil

from millrace.testing.local_broker import LocalBroker

PROPERTIES = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


class Browser:
    """Asks the console as a browser does, without following to other pages."""

    def __init__(self, url: str, **headers: str) -> None:
        self._address = url.partition("://")[2]
        self.headers = headers

    def ask(
        self, path: str, form: Mapping[str, str] | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """Returns (status, headers, text) of an answer."""
        connection = http.client.HTTPConnection(self._address, timeout=120)
        body = None if form is None else urlencode(form)
        sent = {"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}
        connection.request(
            "GET" if form is None else "POST", f"/console/{path}", body, {**sent, **self.headers, **headers}
        )
        try:
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def page(self, path: str) -> str:
        """Returns the text of a page that is there."""
        status, _, text = self.ask(path)
        assert status == 200, text
        return text

    def status(self, path: str, form: Mapping[str, str] | None = None, **headers: str) -> int:
        """Returns the status of an answer."""
        return self.ask(path, form, **headers)[0]


def cells(text: str) -> list[list[str]]:
    """Returns the texts of a page's cells, by rows."""
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    return [
        [
            unescape(re.sub(r"<[^>]*>", "", cell)).strip()
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


def console_of(broker: LocalBroker) -> psutil.Process:
    """Returns the process that makes the pages of a broker."""
    [child] = [
        one for one in psutil.Process(broker.pid).children(recursive=True) if "millrace_ops.console" in one.cmdline()
    ]
    return child


def shown(browser: Browser, query: str, topic: str = "weather") -> list[tuple[str, str, str]]:
    """Returns (partition@offset, key, value) of the records on a page of messages."""
    return [(row[0], row[2], row[3]) for row in cells(browser.page(f"messages?topic={topic}&{query}"))[1:]]
