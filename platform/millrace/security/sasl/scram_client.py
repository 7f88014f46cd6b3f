"""A client's side of SCRAM: it proves that it knows the password, and checks that the server has its keys.

BEGUN ─ client first ─▶ CHALLENGED ─ server first, client final ─▶ PROVEN ─ server final ─▶ COMPLETE
"""

from __future__ import annotations

import hmac
from enum import Enum, auto

from millrace.errors import SaslAuthenticationError
from millrace.security.sasl import scram_messages as messages
from millrace.security.sasl.scram import MIN_ITERATIONS, SCRAM_HASHES, client_proof, hmac_of, salted_password
from millrace.security.sasl.scram import nonce as new_nonce

MAX_CLIENT_ITERATIONS = 1_000_000  # bounds what a hostile server makes a client compute


class State(Enum):
    """How far an authentication has come."""

    BEGUN = auto()
    CHALLENGED = auto()
    PROVEN = auto()
    COMPLETE = auto()


class ScramClient:
    """A client with a name and a password, or with a delegation token's id and HMAC."""

    def __init__(
        self, name: str, username: str, password: str, *, is_by_token: bool = False, nonce: str | None = None
    ) -> None:
        self.name = name
        self._hash_name = SCRAM_HASHES[name]
        self._password = password
        self._nonce = nonce or new_nonce()
        self._first = messages.client_first(username, self._nonce, is_by_token=is_by_token)
        self._signature = b""
        self._state = State.BEGUN

    @property
    def is_complete(self) -> bool:
        """Whether the server has proven that it knows this user's keys."""
        return self._state is State.COMPLETE

    def initial_response(self) -> bytes:
        """Returns the client's first message."""
        self._state = State.CHALLENGED
        return (messages.GS2_HEADER + self._first).encode()

    def respond(self, challenge: bytes) -> bytes:
        """Returns the proof, then b"" if the server has proven its identity; else raises SaslAuthenticationError."""
        match self._state:
            case State.CHALLENGED:
                return self._prove(messages.parse_server_first(challenge))
            case State.PROVEN:
                return self._check(messages.parse_server_final(challenge))
            case _:
                raise SaslAuthenticationError(f"the server says more than {self.name} has to say")

    def _prove(self, server: messages.ServerFirst) -> bytes:
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslAuthenticationError("the server's nonce does not continue this client's")
        if not MIN_ITERATIONS <= server.iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslAuthenticationError(
                f"the server asks for {server.iterations} iterations; "
                f"expected {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS}"
            )
        final = messages.client_final(server.nonce)
        signed = messages.auth_message(self._first, server.text, final)
        salted = salted_password(self._hash_name, self._password, server.salt, server.iterations)
        server_key = hmac_of(self._hash_name, salted, b"Server Key")
        self._signature = hmac_of(self._hash_name, server_key, signed)
        self._state = State.PROVEN
        return final.encode() + b"," + messages.encoded("p", client_proof(self._hash_name, salted, signed))

    def _check(self, server: messages.ServerFinal) -> bytes:
        if server.error is not None:
            raise SaslAuthenticationError(f"the server refuses {self.name}: {server.error}")
        if not hmac.compare_digest(server.signature, self._signature):
            raise SaslAuthenticationError("the server does not know this user's keys: it may be another than it says")
        self._state = State.COMPLETE
        return b""
