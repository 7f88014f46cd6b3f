"""SCRAM (RFC 5802, RFC 7677): what is kept of a password (KIP-84), the messages, and both sides of an authentication.

    salted password   PBKDF2 of the password, the salt and the iterations
    client key        HMAC(salted password, "Client Key")
    stored key        hash(client key): the broker keeps it, and can't log in by it
    server key        HMAC(salted password, "Server Key"): the broker proves itself by it

The text of a credential is that of Kafka's nodes: salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=4096

The four messages (RFC 5802, section 7), without channel binding, which Kafka does not offer:

    client first    n,[a=AUTHORIZATION ID],n=NAME,r=NONCE[,tokenauth=true]
    server first    r=NONCE AND SERVER'S NONCE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE AND SERVER'S NONCE,p=PROOF
    server final    v=SIGNATURE, or e=ERROR

Both sides sign the `auth message`: the first three messages, without the beginning of the first, `n,…,`, and without
the proof of the third (`bare` in the expressions). In names "," is written =2C and "=" is written =3D. An extension
that is not known is ignored.

The client proves that it knows the password, and checks that the server has its keys:

    BEGUN ─ client first ─▶ CHALLENGED ─ server first, client final ─▶ PROVEN ─ server final ─▶ COMPLETE

For an unknown user the broker does the same as for a known one, up to the proof, which fails. So neither the messages
nor the time that they take tell an unknown user from a wrong password. The salt of an unknown user is always the same
(`UnknownUsers`), as that of a known one is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from enum import Enum, auto
from hashlib import shake_256
from typing import NamedTuple

from millrace.errors import SaslAuthenticationError, UnacceptableCredentialError
from millrace.security.sasl.names import SCRAM_SHA_256, SCRAM_SHA_512, Authenticated, invalid_credentials

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
    """What a broker stores for a password: salt, iterations, and two keys that do not reveal the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def new_nonce() -> str:
    """Returns a random nonce in Kafka's form: 26 digits of base 36, which are 134 bits."""
    return "".join(secrets.choice(BASE_36) for _ in range(NONCE_CHARACTERS))


def new_salt() -> bytes:
    """Returns a new random salt."""
    return new_nonce().encode()


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns RFC 5802's SaltedPassword, from which all keys derive; takes time in proportion to the iterations."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential to store for a salted password, its salt and its iterations."""
    hash_name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    return ScramCredential(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


def new_credential(mechanism: str, password: str, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """Returns a credential of the password, with a new salt."""
    salt = new_salt()
    salted = salted_password(SCRAM_HASHES[mechanism], password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_proof(hash_name: str, salted: bytes, auth_message: bytes) -> bytes:
    """Returns RFC 5802's ClientProof, by which a client proves that it knows the password."""
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return xor(client_key, hmac.digest(stored_key, auth_message, hash_name))


def is_proof(hash_name: str, stored_key: bytes, auth_message: bytes, proof: bytes) -> bool:
    """Returns whether a client has made the proof with the password of this stored key."""
    signature = hmac.digest(stored_key, auth_message, hash_name)
    if len(proof) != len(signature):
        return False
    return hmac.compare_digest(hashlib.new(hash_name, xor(proof, signature)).digest(), stored_key)


def xor(first: bytes, second: bytes) -> bytes:
    """Returns the exclusive or of two values with the same number of bytes."""
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def credential_text(credential: ScramCredential) -> str:
    """Returns a credential as Kafka writes it: `salt=…,stored_key=…,server_key=…,iterations=…`, bytes in base 64."""
    salt, stored_key, server_key = (base64.b64encode(one).decode() for one in credential[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Returns the credential in `salt=…,stored_key=…,server_key=…,iterations=…`, bytes in base 64.

    Raises UnacceptableCredentialError for another form.
    """
    match = CREDENTIAL.fullmatch(text)
    if match is None:
        raise UnacceptableCredentialError("the text of a SCRAM credential has another form than Kafka's")
    try:
        salt, stored_key, server_key = (base64.b64decode(match[name], validate=True) for name in CREDENTIAL_KEYS)
    except binascii.Error:
        raise UnacceptableCredentialError("a key of a SCRAM credential is not in base 64") from None
    return ScramCredential(salt, stored_key, server_key, int(match["iterations"]))


CREDENTIAL_KEYS = ("salt", "stored_key", "server_key")


VALUE = r"[^\x00,]+"
NAME = r"(?:[^\x00=,]|=2C|=3D)+"
NONCE = r"[\x21-\x2b\x2d-\x7e]+"
BASE64 = r"[A-Za-z0-9+/]*={0,2}"
EXTENSIONS = rf"(?:,[A-Za-z]+={VALUE})*"
CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{NAME}))?,(?P<bare>(?:m={VALUE},)?n=(?P<name>{NAME}),r=(?P<nonce>{NONCE})"
    rf"(?P<extensions>{EXTENSIONS}))"
)
SERVER_FIRST = re.compile(
    rf"(?:m={VALUE},)?r=(?P<nonce>{NONCE}),s=(?P<salt>{BASE64}),i=(?P<iterations>[0-9]{{1,9}}){EXTENSIONS}"
)
CLIENT_FINAL = re.compile(rf"(?P<bare>c=(?P<channel>{BASE64}),r=(?P<nonce>{NONCE}){EXTENSIONS}),p=(?P<proof>{BASE64})")
SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{VALUE})|v=(?P<signature>{BASE64})){EXTENSIONS}")
GS2_HEADER = "n,,"
CHANNEL = base64.b64encode(GS2_HEADER.encode()).decode()
TOKEN_EXTENSION = "tokenauth"  # noqa: S105 -- an extension's name


class ServerFirst(NamedTuple):
    """A server's first message, parsed: the nonce, the salt and the number of iterations."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


def client_first(name: str, nonce: str, *, is_by_token: bool) -> str:
    """Returns the part `n=…,r=…` of a client's first message, which the proofs sign."""
    sasl_name = name.replace("=", "=3D").replace(",", "=2C")
    return f"n={sasl_name},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if is_by_token else "")


def client_final(nonce: str) -> str:
    """Returns the part `c=…,r=…` of a client's last message, which the proofs sign."""
    return f"c={CHANNEL},r={nonce}"


def auth_message(first: str, challenge: str, final: str) -> bytes:
    """Returns RFC 5802's AuthMessage, which both sides sign: `bare`, challenge and last `bare`, joined by commas."""
    return f"{first},{challenge},{final}".encode()


def parse_server_first(message: bytes) -> ServerFirst:
    """Returns a server's `r=…,s=…,i=…`, parsed; raises SaslAuthenticationError for another form."""
    match = _match(SERVER_FIRST, message)
    return ServerFirst(match[0], match["nonce"], _decoded(match["salt"]), int(match["iterations"]))


def encoded(prefix: str, value: bytes) -> bytes:
    """Returns the field `PREFIX=VALUE` of a message, the value in base 64."""
    return f"{prefix}={base64.b64encode(value).decode()}".encode()


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslAuthenticationError("a message of SCRAM has another form than RFC 5802 gives it")
    return match


def _name(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslAuthenticationError("a value of a message of SCRAM is not in base 64") from None


MAX_CLIENT_ITERATIONS = 1_000_000  # bounds what a hostile server makes a client compute


class State(Enum):
    """The phase of a client's SCRAM authentication."""

    BEGUN = auto()
    CHALLENGED = auto()
    PROVEN = auto()
    COMPLETE = auto()


class ScramClient:
    """A client's side of SCRAM, with a user's name and password, or a delegation token's id and HMAC."""

    def __init__(
        self, name: str, username: str, password: str, *, is_by_token: bool = False, nonce: str | None = None
    ) -> None:
        self.name = name
        self._hash_name = SCRAM_HASHES[name]
        self._password = password
        self._nonce = nonce or new_nonce()
        self._first = client_first(username, self._nonce, is_by_token=is_by_token)
        self._signature = b""
        self._state = State.BEGUN

    @property
    def is_complete(self) -> bool:
        """Whether the server's signature has proven that it knows this user's keys."""
        return self._state is State.COMPLETE

    def initial_response(self) -> bytes:
        """Returns the client's first message, with its name and nonce."""
        self._state = State.CHALLENGED
        return (GS2_HEADER + self._first).encode()

    def respond(self, challenge: bytes) -> bytes:
        """Returns the client's proof, then b"" for a server that proves who it is; raises SaslAuthenticationError."""
        match self._state:
            case State.CHALLENGED:
                return self._prove(parse_server_first(challenge))
            case State.PROVEN:
                return self._check(_match(SERVER_FINAL, challenge))
            case _:
                raise SaslAuthenticationError(f"the server says more than {self.name} has to say")

    def _prove(self, server: ServerFirst) -> bytes:
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslAuthenticationError("the server's nonce does not continue this client's")
        if not MIN_ITERATIONS <= server.iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslAuthenticationError(
                f"the server asks for {server.iterations} iterations; "
                f"expected {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS}"
            )
        final = client_final(server.nonce)
        signed = auth_message(self._first, server.text, final)
        salted = salted_password(self._hash_name, self._password, server.salt, server.iterations)
        server_key = hmac.digest(salted, b"Server Key", self._hash_name)
        self._signature = hmac.digest(server_key, signed, self._hash_name)
        self._state = State.PROVEN
        return final.encode() + b"," + encoded("p", client_proof(self._hash_name, salted, signed))

    def _check(self, server: re.Match[str]) -> bytes:
        if server["error"] is not None:
            raise SaslAuthenticationError(f"the server refuses {self.name}: {server['error']}")
        if not hmac.compare_digest(_decoded(server["signature"]), self._signature):
            raise SaslAuthenticationError("the server does not know this user's keys: it may be another than it says")
        self._state = State.COMPLETE
        return b""


BASE_36_BYTES = BASE_36.encode()


class Known(NamedTuple):
    """The credential of a user name, and the user that has proven who it is once that was checked.

    The user is None for an unknown name, whose credential is made up; for a delegation token it is the owner.
    """

    credential: ScramCredential
    authenticated: Authenticated | None


Lookup = Callable[[str, bool], Known]  # takes a name, and whether it is the id of a delegation token


class ScramServer:
    """A broker's side of one SCRAM authentication."""

    def __init__(self, name: str, lookup: Lookup, nonce: str | None = None) -> None:
        self.name = name
        self._hash_name = SCRAM_HASHES[name]
        self._lookup = lookup
        self._nonce = nonce or new_nonce()
        self._known: Known | None = None
        self._signed_first = ""
        self.authenticated: Authenticated | None = None

    def respond(self, response: bytes) -> bytes:
        """Returns the challenge for a first message, the signature for a last; raises SaslAuthenticationError."""
        if self.authenticated is not None:
            raise invalid_credentials(self.name)
        try:
            if self._known is None:
                return self._challenge(_match(CLIENT_FIRST, response))
            return self._check(self._known, _match(CLIENT_FINAL, response))
        except SaslAuthenticationError:
            raise invalid_credentials(self.name) from None

    def _challenge(self, client: re.Match[str]) -> bytes:
        name = _name(client["name"])
        extensions = dict(one.split("=", 1) for one in client["extensions"].split(",") if one)
        known = self._lookup(name, extensions.get(TOKEN_EXTENSION, "").lower() == "true")
        authorization_id = _name(client["authorization_id"] or "")
        if authorization_id not in ("", name) or known.credential.iterations < MIN_ITERATIONS:
            raise invalid_credentials(self.name)
        self._known = known
        self._nonce = client["nonce"] + self._nonce
        salt = base64.b64encode(known.credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={known.credential.iterations}"
        self._signed_first = f"{client['bare']},{challenge}"
        return challenge.encode()

    def _check(self, known: Known, client: re.Match[str]) -> bytes:
        signed = f"{self._signed_first},{client['bare']}".encode()
        is_proven = is_proof(self._hash_name, known.credential.stored_key, signed, _decoded(client["proof"]))
        if not is_proven or client["nonce"] != self._nonce or known.authenticated is None:
            raise invalid_credentials(self.name)
        self.authenticated = known.authenticated
        return encoded("v", hmac.digest(known.credential.server_key, signed, self._hash_name))


class UnknownUsers:
    """Makes up credentials for unknown users, always the same for a name, so that nobody learns which users exist.

    Such a credential looks like `model`, a known user's: as many iterations, a salt of the same length and alphabet.
    The credential derives from the model's server key, which nobody else knows, and no password fits it.
    """

    def __init__(self, model: ScramCredential) -> None:
        self._model = model
        self._is_text = all(byte in BASE_36_BYTES for byte in model.salt)

    def credential(self, user: str) -> ScramCredential:
        """Returns the made-up credential of an unknown user, the same each time."""
        salt, stored_key, server_key, iterations = self._model
        made_up = shake_256(server_key + user.encode()).digest(len(salt) + len(stored_key))
        shown = made_up[: len(salt)]
        if self._is_text:
            shown = bytes(BASE_36_BYTES[byte % len(BASE_36_BYTES)] for byte in shown)
        return ScramCredential(shown, made_up[len(salt) :], server_key, iterations)
