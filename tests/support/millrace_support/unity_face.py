"""A server that answers to Unity Catalog's requests about tables, as its API of version 2.1 is described."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API = "/api/2.1/unity-catalog/tables"
REQUIRED = {"name", "catalog_name", "schema_name", "table_type", "data_source_format", "columns", "storage_location"}
TOKEN = "token-of-tests"  # noqa: S105  # of a server on this machine's loopback


class UnityFace(ThreadingHTTPServer):
    """The server; `tables` has what was entered, by the whole names."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tables: dict[str, dict[str, Any]] = {}
        self.is_well = True


class _Handler(BaseHTTPRequestHandler):
    server: UnityFace

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Does nothing: nobody reads it."""

    def do_GET(self) -> None:
        """Returns a table."""
        if self._may():
            table = self.server.tables.get(self._name())
            self._answer(404 if table is None else 200, table or {"error_code": "TABLE_DOES_NOT_EXIST"})

    def do_DELETE(self) -> None:
        """Removes a table."""
        if self._may():
            found = self.server.tables.pop(self._name(), None)
            self._answer(404 if found is None else 200, {})

    def do_POST(self) -> None:
        """Enters a table, if all is said that has to be, and the name is free."""
        table = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._may():
            name = ".".join(table.get(part, "") for part in ("catalog_name", "schema_name", "name"))
            is_whole = table.keys() >= REQUIRED and all(
                one["type_text"] and one["type_name"] for one in table["columns"]
            )
            is_new = name not in self.server.tables
            if is_whole and is_new:
                self.server.tables[name] = table
            self._answer(200 if is_whole and is_new else 409 if is_whole else 400, table)

    def _may(self) -> bool:
        if not self.server.is_well:
            self._answer(503, {})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {})
        else:
            return self.path.startswith(API)
        return False

    def _name(self) -> str:
        return self.path.removeprefix(f"{API}/")

    def _answer(self, status: int, said: object) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def unity() -> Iterator[UnityFace]:
    """Runs the server."""
    with UnityFace() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
