"""A tiny OAuth server for tests: it gives signed tokens for client credentials, and shows its keys.

POST /token   {"access_token": JWT, "expires_in": SECONDS}
GET /keys     the public keys, by which the tokens can be checked
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://issuer.test"
AUDIENCE = "millrace"
LIFE_SECONDS = 600


class TokenServer:
    """A server with one signing key, which `rotate` replaces. It fails at the next requests, `failures` in number."""

    def __init__(self, secrets: Mapping[str, str], life_s: int = LIFE_SECONDS) -> None:
        self.secrets = secrets
        self.life_s = life_s
        self.requests: list[dict[str, str]] = []
        self.failures = 0
        self._key_number = 0
        self._key = new_key()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def token_url(self) -> str:
        """Where tokens are asked for."""
        return f"http://127.0.0.1:{self._server.server_port}/token"

    @property
    def keys_url(self) -> str:
        """Where the public keys are."""
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    def rotate(self) -> None:
        """Signs with another key from now on, and shows only that one."""
        self._key_number += 1
        self._key = new_key()

    def token(self, **claims: object) -> str:
        """Returns a signed token; a claim of None is left out."""
        now_s = int(time.time())
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + self.life_s}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(given, self._key, "RS256", headers={"kid": f"key-{self._key_number}"})

    def keys(self) -> dict[str, object]:
        """Returns the set of public keys."""
        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {"keys": [key | {"kid": f"key-{self._key_number}", "use": "sig", "alg": "RS256"}]}

    def is_known(self, authorization: str) -> bool:
        """Returns whether a header has the id and the secret of a client."""
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        client_id, _, secret = pair.partition(":")
        return self.secrets.get(client_id) == secret


def new_key() -> RSAPrivateKey:
    """Returns a key that signs."""
    return generate_private_key(public_exponent=65537, key_size=2048)


def _handler_of(tokens: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, tokens.keys())

        def do_POST(self) -> None:
            authorization = self.headers["Authorization"]
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            tokens.requests.append(dict(parse_qsl(form)))
            if tokens.failures:
                tokens.failures -= 1
                self._answer(503, {"error": "temporarily_unavailable"})
                return
            if not tokens.is_known(authorization):
                self._answer(401, {"error": "invalid_client"})
                return
            client_id = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[0]
            self._answer(200, {"access_token": tokens.token(sub=client_id), "expires_in": tokens.life_s})

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Logs nothing."""

        def _answer(self, status: int, content: Mapping[str, object]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
