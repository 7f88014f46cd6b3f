"""A small schema registry for tests: a real HTTP server with the part of Confluent's REST interface that readers use.

    GET /schemas/ids/{id}    GET /subjects/{subject}/versions    GET /subjects/{subject}/versions/{version}
    POST /token              an OAuth endpoint beside it: to the client `reader` with the secret `of-reader` a token

`register` is a method, because tests need not post. `failures` is how many of the next answers are 503.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

TOKEN = "a-token-of-the-endpoint"  # noqa: S105 -- it opens nothing
OF_READER = "Basic cmVhZGVyOm9mLXJlYWRlcg=="  # reader:of-reader


class SchemaRegistryServer:
    """Serves on a free port of this machine while it is used as a context manager.

    Attributes:
        failures: How many of the next requests get 503.
        requests: The paths of all requests.
        credentials: The Authorization header that is required; None for none.
        headers: The headers of the last request.

    Args:
        context: What TLS needs; None for plain HTTP.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.failures = 0
        self.requests: list[str] = []
        self.credentials: str | None = None
        self.headers: Mapping[str, str] = {}
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="schema-registry", daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self._server.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Registers a schema as the subject's next version, and returns its id."""
        schema_id = len(self._schemas) + 1
        names = ("name", "subject", "version")
        listed = [dict(zip(names, reference, strict=True)) for reference in references]
        self._schemas[schema_id] = {"schema": text, "references": listed} | (
            {} if kind == "AVRO" else {"schemaType": kind}
        )
        self._subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def answer(self, path: str) -> Any:
        """Returns the answer to a GET, or None if the path doesn't exist."""
        match [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]:
            case ["schemas", "ids", schema_id]:
                return self._schemas.get(int(schema_id))
            case ["subjects", subject, "versions"]:
                ids = self._subjects.get(subject)
                return None if ids is None else list(range(1, len(ids) + 1))
            case ["subjects", subject, "versions", version]:
                found = self._subjects[subject][int(version) - 1]
                return {"subject": subject, "id": found, "version": int(version)} | self._schemas[found]
        return None


def _handler(registry: SchemaRegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.requests.append(self.path)
            registry.headers = dict(self.headers)
            if registry.failures > 0:
                registry.failures -= 1
                self._send(503, {"error_code": 50003, "message": "not now"})
            elif registry.credentials is not None and self.headers.get("Authorization") != registry.credentials:
                self._send(401, {"error_code": 401, "message": "Unauthorized"})
            elif (answer := registry.answer(self.path)) is None:
                self._send(404, {"error_code": 40403, "message": "Schema not found"})
            else:
                self._send(200, answer)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") == OF_READER:
                self._send(200, {"access_token": TOKEN, "expires_in": 300})
            else:
                self._send(401, {"error": "invalid_client"})

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it
            """Logs nothing."""

    return Handler
