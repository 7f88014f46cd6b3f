"""The admin endpoint of a mirror, whose paths are those of a broker's.

    GET /metrics    for Prometheus
    GET /healthz    200 while the process answers
    GET /readyz     200 once it has its share of every source, and while all clusters answer; else 503

The two last say so in JSON, with the reasons. It answers whoever reaches it, and has nothing to change. A client that
goes away, or says nothing for `SILENCE_S`, is let go without a word.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from millrace.addresses import Address
from millrace.errors import SetupError
from millrace_pipelines.mirror.instance import Standing
from millrace_pipelines.mirror.metrics import MirrorCollector
from millrace_pipelines.mirror.reachability import Place, Reachability
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.settings import MirrorSettings

SILENCE_S = 30.0

logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes


@contextmanager
def serving_admin(address: Address, settings: MirrorSettings, service: MirrorService) -> Iterator[Address]:
    """Makes the context in which a mirror's endpoint is served, and returns where; raises SetupError.

    Port 0 takes a free one.
    """
    registry = CollectorRegistry()
    with Reachability(settings) as reachability:
        registry.register(MirrorCollector(service, reachability.troubles))
        answers = {
            "/metrics": lambda: Answer(200, CONTENT_TYPE_LATEST, generate_latest(registry)),
            "/healthz": lambda: told(()),
            "/readyz": lambda: told(not_ready(service.standings(), reachability.troubles())),
        }
        with served(address, answers) as port:
            yield address._replace(port=port)


def not_ready(standings: Iterable[Standing], troubles: Mapping[Place, str]) -> Sequence[str]:
    """Returns why an instance is not ready, a sentence for each reason."""
    waiting = [f"source {one.source}: it has no share of the partitions yet" for one in standings if not one.has_share]
    return waiting + [f"{place}: {trouble}" for place, trouble in troubles.items() if trouble]


def told(reasons: Sequence[str]) -> Answer:
    """Returns the answer that a probe gets."""
    body = {"status": "failed" if reasons else "ok", "reasons": reasons}
    return Answer(503 if reasons else 200, "application/json", json.dumps(body).encode())


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  socketserver's signature
        if not isinstance(error := sys.exception(), ConnectionError):
            logger.error("a request of %s could not be answered", client_address, exc_info=error)


@contextmanager
def served(address: Address, answers: Mapping[str, Callable[[], Answer]]) -> Iterator[int]:
    """Makes the context in which each path has its answer, and returns the port; raises SetupError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S

        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            status, content_type, body = Answer(404, "text/plain", b"not found\n") if answer is None else answer()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    try:
        server = _Server(address, Handler)
    except OSError as error:
        raise SetupError(f"--admin {address}: {error.strerror or error}") from error
    with server:
        thread = threading.Thread(target=server.serve_forever, name="admin", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
