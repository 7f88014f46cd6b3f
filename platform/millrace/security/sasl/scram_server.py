"""The broker's side of SCRAM. For an unknown user it does the same as for a known one, up to the proof, which fails.

So neither the messages nor the time that they take tell an unknown user from a wrong password. The salt of an unknown
user is always the same (`UnknownUsers`), as that of a known one is.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import shake_256
from typing import NamedTuple

from millrace.errors import SaslAuthenticationError
from millrace.security.sasl import scram_messages as messages
from millrace.security.sasl.scram import BASE_36, MIN_ITERATIONS, SCRAM_HASHES, ScramCredential, hmac_of, is_proof
from millrace.security.sasl.scram import nonce as new_nonce
from millrace.security.sasl.server_mechanism import Authenticated, invalid_credentials

BASE_36_BYTES = BASE_36.encode()


class Known(NamedTuple):
    """What a broker knows of a name: the credential, and the user that it authenticates, None for an unknown name.

    A delegation token authenticates its owner, until it expires.
    """

    credential: ScramCredential
    authenticated: Authenticated | None


Lookup = Callable[[str, bool], Known]  # takes a name, and whether it is the id of a delegation token


class ScramServer:
    """One authentication by SCRAM."""

    def __init__(self, name: str, lookup: Lookup, nonce: str | None = None) -> None:
        self.name = name
        self._hash_name = SCRAM_HASHES[name]
        self._lookup = lookup
        self._nonce = nonce or new_nonce()
        self._known: Known | None = None
        self._signed_first = ""
        self.authenticated: Authenticated | None = None

    def respond(self, response: bytes) -> bytes:
        """Returns the challenge, then the signature; raises SaslAuthenticationError where the authentication fails."""
        if self.authenticated is not None:
            raise invalid_credentials(self.name)
        try:
            if self._known is None:
                return self._challenge(messages.parse_client_first(response))
            return self._check(self._known, messages.parse_client_final(response))
        except SaslAuthenticationError:
            raise invalid_credentials(self.name) from None

    def _challenge(self, client: messages.ClientFirst) -> bytes:
        known = self._lookup(client.name, client.is_by_token)
        if client.authorization_id not in ("", client.name) or known.credential.iterations < MIN_ITERATIONS:
            raise invalid_credentials(self.name)
        self._known = known
        self._nonce = client.nonce + self._nonce
        challenge = messages.server_first(self._nonce, known.credential.salt, known.credential.iterations)
        self._signed_first = f"{client.bare},{challenge}"
        return challenge.encode()

    def _check(self, known: Known, client: messages.ClientFinal) -> bytes:
        signed = f"{self._signed_first},{client.bare}".encode()
        is_proven = is_proof(self._hash_name, known.credential.stored_key, signed, client.proof)
        if not is_proven or client.nonce != self._nonce or known.authenticated is None:
            raise invalid_credentials(self.name)
        self.authenticated = known.authenticated
        return messages.encoded("v", hmac_of(self._hash_name, known.credential.server_key, signed))


class UnknownUsers:
    """Makes up credentials for unknown users: always the same one for a name, which no password fits.

    It looks like `model`, the credential of a known user: as many iterations, and a salt of the same length and
    alphabet. It is derived from the model's server key, so nobody else can derive it.
    """

    def __init__(self, model: ScramCredential) -> None:
        self._model = model
        self._is_text = all(byte in BASE_36_BYTES for byte in model.salt)

    def credential(self, user: str) -> ScramCredential:
        """Returns the credential that is shown for a user."""
        salt, stored_key, server_key, iterations = self._model
        made_up = shake_256(server_key + user.encode()).digest(len(salt) + len(stored_key))
        shown = made_up[: len(salt)]
        if self._is_text:
            shown = bytes(BASE_36_BYTES[byte % len(BASE_36_BYTES)] for byte in shown)
        return ScramCredential(shown, made_up[len(salt) :], server_key, iterations)
