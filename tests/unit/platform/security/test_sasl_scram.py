"""SCRAM against the vectors of RFC 7677, and one side of the mechanism against the other."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import SaslAuthenticationError, UnacceptableCredentialError
from millrace.security.sasl import scram
from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.scram import Known, ScramClient, ScramServer, UnknownUsers

SHA_256 = "SCRAM-SHA-256"
# RFC 7677, section 3
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(mechanism, password, iterations=4096, salt=SALT):
    salted = scram.salted_password(scram.SCRAM_HASHES[mechanism], password, salt, iterations)
    return scram.credential_of(mechanism, salted, salt, iterations)


def server_of(users, mechanism=SHA_256):
    """Returns a server that knows credentials by user."""
    unknown = UnknownUsers(next(iter(users.values())))

    def lookup(user, _is_by_token):
        made_up = unknown.credential(user)
        return Known(users.get(user, made_up), Authenticated(user) if user in users else None)

    return ScramServer(mechanism, lookup)


def converse(client, server):
    """Carries messages between both until the client has nothing left to say."""
    message = client.initial_response()
    while not client.is_complete:
        message = client.respond(server.respond(message))
    return server.authenticated


def test_a_client_says_what_rfc_7677_says():
    client = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    assert client.initial_response() == FIRST
    assert client.respond(CHALLENGE) == FINAL
    assert not client.is_complete
    assert client.respond(SIGNATURE) == b""
    assert client.is_complete


def test_a_server_says_what_rfc_7677_says():
    known = Known(credential(SHA_256, "pencil"), Authenticated("user"))
    server = ScramServer(SHA_256, lambda _user, _is_by_token: known, nonce=SERVER_NONCE)
    assert server.respond(FIRST) == CHALLENGE
    assert server.authenticated is None
    assert server.respond(FINAL) == SIGNATURE
    assert server.authenticated == Authenticated("user")


def test_the_arithmetic_is_that_of_rfc_5802():
    """Its example has SHA-1, which no mechanism of Kafka has; the functions are the same."""
    first, challenge = (
        "n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        ("r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"),
    )
    signed = f"{first},{challenge},c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j".encode()
    salted = scram.salted_password("sha1", "pencil", base64.b64decode("QSXCR+Q6sek8bf92"), 4096)
    proof = scram.client_proof("sha1", salted, signed)
    assert base64.b64encode(proof) == b"v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    stored_key = hashlib.sha1(hmac.digest(salted, b"Client Key", "sha1")).digest()
    assert scram.is_proof("sha1", stored_key, signed, proof)
    assert not scram.is_proof("sha1", stored_key, signed, proof[::-1])
    server_key = hmac.digest(salted, b"Server Key", "sha1")
    assert base64.b64encode(hmac.digest(server_key, signed, "sha1")) == b"rmF9pqV8S7suAoZWja4dJRkFsKQ="


@pytest.mark.parametrize("mechanism", scram.SCRAM_HASHES)
@settings(max_examples=20)
@given(user=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), password=st.text(min_size=1))
def test_both_sides_understand_each_other(mechanism, user, password):
    users = {user: scram.new_credential(mechanism, password, 4096)}
    assert converse(ScramClient(mechanism, user, password), server_of(users, mechanism)).user == user


@pytest.mark.parametrize(("user", "password"), [("user", "pen"), ("nobody", "pencil"), ("nobody", "")])
def test_wrong_passwords_and_unknown_users_fail_at_the_same_message_in_the_same_words(user, password):
    client, server = ScramClient(SHA_256, user, password), server_of({"user": credential(SHA_256, "pencil")})
    proof = client.respond(server.respond(client.initial_response()))
    with pytest.raises(SaslAuthenticationError) as refused:
        server.respond(proof)
    assert str(refused.value) == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert server.authenticated is None


def test_an_unknown_user_looks_like_a_known_one():
    model = scram.new_credential(SHA_256, "pencil", 8192)
    unknown = UnknownUsers(model)
    shown = unknown.credential("nobody")
    assert shown == UnknownUsers(model).credential("nobody")
    assert shown.salt != unknown.credential("somebody").salt
    assert (len(shown.salt), shown.iterations) == (len(model.salt), 8192)
    assert set(shown.salt) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz")
    assert len(UnknownUsers(credential(SHA_256, "pencil")).credential("nobody").salt) == len(SALT)


def test_a_token_is_looked_up_as_one():
    asked = []

    def lookup(name, is_by_token):
        asked.append((name, is_by_token))
        return Known(credential(SHA_256, "hmac"), Authenticated("owner", 5000, is_by_token))

    assert converse(
        ScramClient(SHA_256, "id", "hmac", is_by_token=True), ScramServer(SHA_256, lookup)
    ) == Authenticated("owner", 5000, is_by_token=True)
    assert asked == [("id", True)]


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        CHALLENGE.replace(b"i=4096", b"i=4095"),
        CHALLENGE.replace(b"i=4096", b"i=1000001"),
        CHALLENGE.replace(b"r=rOpr", b"r=rOpq"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"s=W22Z", b"s=W22"),
    ],
)
def test_a_client_refuses_a_challenge_that_is_none(challenge):
    client = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    client.initial_response()
    with pytest.raises(SaslAuthenticationError):
        client.respond(challenge)


@pytest.mark.parametrize("final", [SIGNATURE.replace(b"6rri", b"6rrj"), b"e=other-error", b"", b"v=%"])
def test_a_client_refuses_a_server_that_does_not_know_its_keys(final):
    client = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    client.initial_response()
    client.respond(CHALLENGE)
    with pytest.raises(SaslAuthenticationError):
        client.respond(final)
    assert not client.is_complete


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=abc,x",
    ],
)
def test_a_server_refuses_a_first_message_of_another_form(first):
    with pytest.raises(SaslAuthenticationError):
        server_of({"user": credential(SHA_256, "pencil")}).respond(first)


def test_a_credential_is_written_as_kafka_writes_it():
    one = credential(SHA_256, "pencil")
    text = scram.credential_text(one)
    assert text == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert scram.parse_credential(text) == one
    assert "W22Z" not in repr(one)


@pytest.mark.parametrize(
    "text", ["", "salt=,stored_key=,iterations=4096", "salt=%,stored_key=,server_key=,iterations=1"]
)
def test_a_text_that_is_no_credential_is_refused(text):
    with pytest.raises(UnacceptableCredentialError):
        scram.parse_credential(text)
