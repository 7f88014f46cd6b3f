"""The rules of delegation tokens, their nodes and their credentials, against what Apache Kafka does."""

import json
from base64 import b64decode, b64encode

import pytest

from millrace.errors import ZooKeeperError
from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.scram import SCRAM_HASHES, credential_of, salted_password
from millrace_broker.security.client_session import Principal
from millrace_broker.security.tokens import (
    IssuedToken,
    Lifetimes,
    TokenRequest,
    TokenSecret,
    decode_token,
    encode_token,
    new_token,
    token_login,
)

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
LIFETIMES = Lifetimes(max_lifetime_ms=1_000, expiry_time_ms=100)


def token(**given):
    asked = {"requester": ALICE, "owner": ALICE, "renewers": (BOB,), "max_lifetime_ms": -1, **given}
    return new_token(TokenRequest(**asked), "id", 5_000, LIFETIMES)


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [(-1, 6_000, 5_100), (0, 6_000, 5_100), (500, 5_500, 5_100), (50, 5_050, 5_050), (9_999, 6_000, 5_100)],
)
def test_a_token_lives_as_long_as_is_asked_for_and_allowed(asked_ms, max_ms, expiry_ms):
    made = token(max_lifetime_ms=asked_ms)
    assert (made.issue_ms, made.max_ms, made.expiry_ms) == (5_000, max_ms, expiry_ms)


def test_a_token_belongs_to_its_owner_and_renewers_and_not_to_who_asked_for_it():
    made = token(owner=CAROL)
    assert [made.belongs_to(one) for one in (ALICE, BOB, CAROL)] == [False, True, True]


def test_an_expiry_moves_up_to_the_end_of_a_life():
    made = token()
    assert made.expiring(5_050, 200).expiry_ms == 5_250
    assert made.expiring(5_950, 200).expiry_ms == 6_000
    assert [made.is_expired(now) for now in (5_100, 5_101)] == [False, True]


def test_renewers_are_users():
    asked = TokenRequest(requester=ALICE, owner=ALICE, renewers=(Principal("Group", "g"),), max_lifetime_ms=-1)
    assert not asked.has_only_users


def test_a_secret_is_the_hmac_of_the_id_and_is_not_shown():
    secret = TokenSecret("key")  # as Java's HmacSHA512 has it
    assert secret.hmac("id").hex() == (
        "69203b2245b207c62f779403ea4167aa94ce5b14ad595376f89c7d4b5286bc44"
        "4dafb56dcdbca6dba750b37510f39f0876e1ec96c0644b983642c179f758858c"
    )
    assert repr(secret) == "TokenSecret()"


def test_a_node_is_kafkas():
    made = token(owner=Principal("User", "CN=a b,O=*"))
    data = encode_token(made)
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3ACN%3Da%20b%2CO%3D%2A",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 5_000,
        "maxTimestamp": 6_000,
        "expiryTimestamp": 5_100,
        "tokenId": "id",
    }
    assert decode_token(data) == made


def test_an_older_node_has_no_requester():
    fields = {**json.loads(encode_token(token(owner=CAROL))), "version": 1}
    del fields["tokenRequester"]
    assert decode_token(json.dumps(fields).encode()).requester == CAROL


@pytest.mark.parametrize("change", [{"version": 4}, {"owner": "alice"}, {"maxTimestamp": None}])
def test_another_document_is_no_token(change):
    with pytest.raises(ZooKeeperError, match="not a delegation token"):
        decode_token(json.dumps({**json.loads(encode_token(token())), **change}).encode())


# Made by ScramFormatter of Apache Kafka's clients 3.9.1, from this secret, salt and 4,096 iterations.
HMAC = bytes(range(64))
SALT = b"0123456789abcdefghij"
KAFKAS = {
    "SCRAM-SHA-256": ("ajONEhdDQBvYCmr45d2z46xUcSZUxE1ookDcVlRhUwU=", "eVgDCVJ82JEqcrMaeIWFMPagkIIKprOLOcJ2FvadG3I="),
    "SCRAM-SHA-512": (
        "dZoEl+J/HlIfCIz5ZIN9CkiFZqh9KD8YS16Ptkv1dgN8s5uaWPPRvZ6/KFvrPRMBB1NshdflBtdjeItyKHKLhg==",
        "FjN2T7UY0Dtugbm6pcnQ9j8Hjdqyh2OsccMp6N6Z6dJLZ+wx5hliOXUgmYpPRrYoqyqLPllgpZf0SqO4qwFXnw==",
    ),
}


@pytest.mark.parametrize("mechanism", KAFKAS)
def test_a_credential_is_the_one_that_kafka_makes(mechanism):
    salted = salted_password(SCRAM_HASHES[mechanism], b64encode(HMAC).decode(), SALT, 4096)
    made = credential_of(mechanism, salted, SALT, 4096)
    stored, server = KAFKAS[mechanism]
    assert (made.stored_key, made.server_key) == (b64decode(stored), b64decode(server))
    known = token_login(IssuedToken(token(), HMAC), mechanism)
    again = salted_password(SCRAM_HASHES[mechanism], b64encode(HMAC).decode(), known.credential.salt, 4096)
    assert known.credential == credential_of(mechanism, again, known.credential.salt, 4096)


def test_a_login_by_token_is_that_of_its_owner_until_the_token_ends():
    issued = IssuedToken(token(), HMAC)
    first, second = token_login(issued, "SCRAM-SHA-256"), token_login(issued, "SCRAM-SHA-256")
    assert first.credential.salt == second.credential.salt
    ends_ms = min(issued.token.expiry_ms, issued.token.max_ms)
    assert first.authenticated == Authenticated(issued.token.owner.name, ends_ms, is_by_token=True)
