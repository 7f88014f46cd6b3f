"""The arithmetic of SCRAM (RFC 5802, RFC 7677), and what is kept of a password (KIP-84).

    salted password   PBKDF2 of the password, the salt and the iterations
    client key        HMAC(salted password, "Client Key")
    stored key        hash(client key): the broker keeps it, and can't log in by it
    server key        HMAC(salted password, "Server Key"): the broker proves itself by it

The text of a credential is that of Kafka's nodes: salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=4096
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from millrace.errors import UnacceptableCredentialError
from millrace.security.sasl.names import SCRAM_SHA_256, SCRAM_SHA_512

SCRAM_HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
SCRAM_TYPES = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}  # by the numbers of the protocol (KIP-554)
SCRAM_NUMBERS = {name: number for number, name in SCRAM_TYPES.items()}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
NONCE_CHARACTERS = 26
BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"
CREDENTIAL = re.compile(
    r"salt=(?P<salt>[^,]*),stored_key=(?P<stored_key>[^,]*),server_key=(?P<server_key>[^,]*),iterations=(?P<iterations>\d{1,9})"
)


class ScramCredential(NamedTuple):
    """What a broker keeps of a password: salted keys, from which it can't be read."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def nonce() -> str:
    """Returns a text that nobody can guess, as Kafka makes them: 26 digits to the base 36, of 134 bits."""
    return "".join(secrets.choice(BASE_36) for _ in range(NONCE_CHARACTERS))


def new_salt() -> bytes:
    """Returns a salt that no other password has."""
    return nonce().encode()


def hmac_of(hash_name: str, key: bytes, message: bytes) -> bytes:
    """Returns the HMAC of a message."""
    return hmac.digest(key, message, hash_name)


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns the secret that the keys derive from; the time that it takes grows with the iterations."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential of a salted password."""
    hash_name = SCRAM_HASHES[mechanism]
    client_key = hmac_of(hash_name, salted, b"Client Key")
    server_key = hmac_of(hash_name, salted, b"Server Key")
    return ScramCredential(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


def new_credential(mechanism: str, password: str, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """Returns a credential of the password, with a new salt."""
    salt = new_salt()
    salted = salted_password(SCRAM_HASHES[mechanism], password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_proof(hash_name: str, salted: bytes, auth_message: bytes) -> bytes:
    """Returns what proves that a client knows the password."""
    client_key = hmac_of(hash_name, salted, b"Client Key")
    stored_key = hashlib.new(hash_name, client_key).digest()
    return xor(client_key, hmac_of(hash_name, stored_key, auth_message))


def is_proof(hash_name: str, stored_key: bytes, auth_message: bytes, proof: bytes) -> bool:
    """Returns whether a client's proof comes from the password of the stored key."""
    signature = hmac_of(hash_name, stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    return hmac.compare_digest(hashlib.new(hash_name, xor(proof, signature)).digest(), stored_key)


def xor(first: bytes, second: bytes) -> bytes:
    """Returns the exclusive or of two values with the same number of bytes."""
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def credential_text(credential: ScramCredential) -> str:
    """Returns a credential as Kafka writes it."""
    salt, stored_key, server_key = (base64.b64encode(one).decode() for one in credential[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Parses the text of a credential; raises UnacceptableCredentialError, which hides it, for another form."""
    match = CREDENTIAL.fullmatch(text)
    if match is None:
        raise UnacceptableCredentialError("the text of a SCRAM credential has another form than Kafka's")
    try:
        salt, stored_key, server_key = (base64.b64decode(match[name], validate=True) for name in CREDENTIAL_KEYS)
    except binascii.Error:
        raise UnacceptableCredentialError("a key of a SCRAM credential is not in base 64") from None
    return ScramCredential(salt, stored_key, server_key, int(match["iterations"]))


CREDENTIAL_KEYS = ("salt", "stored_key", "server_key")
