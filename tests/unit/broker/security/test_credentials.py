"""Credentials of users, and that an unknown user costs as much work as a wrong password."""

import hashlib
import hmac
from collections import Counter

import pytest

from millrace.errors import SaslAuthenticationError
from millrace.security.sasl import plain, scram
from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.plain import PlainServer
from millrace.security.sasl.scram import Known, ScramClient, credential_text, new_credential
from millrace_broker.security.authentication.authentication import new_mechanism
from millrace_broker.security.authentication.credentials import Credentials, user_entity, users_of
from millrace_broker.security.authentication.listener_security import ListenerSecurity

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
ALICE = new_credential(SHA_256, "pencil")


def users(**names):
    return {user_entity(name): {SHA_256: credential_text(one)} for name, one in names.items()}


def test_users_are_found_by_name_and_mechanism():
    credentials = Credentials(lambda: configs)
    configs = users(alice=ALICE) | {
        "users/<default>": {SHA_256: credential_text(ALICE)},
        "users/alice/clients/app": {"producer_byte_rate": "1"},
        "clients/alice": {SHA_256: credential_text(ALICE)},
        user_entity("a b/ü"): {SHA_512: credential_text(new_credential(SHA_512, "x"))},
        "users/broken": {SHA_256: "salt=secret"},
    }
    assert credentials.find(SHA_256, "alice", is_by_token=False) == Known(ALICE, Authenticated("alice"))
    assert credentials.find(SHA_512, "a b/ü", is_by_token=False).authenticated == Authenticated("a b/ü")
    for mechanism, name in ((SHA_512, "alice"), (SHA_256, "<default>"), (SHA_256, "broken"), (SHA_256, "nobody")):
        assert credentials.find(mechanism, name, is_by_token=False).authenticated is None
    assert set(users_of(configs)) == {"alice", "a b/ü", "broken"}


def test_a_credential_that_is_written_later_is_obeyed():
    configs = {}
    credentials = Credentials(lambda: configs)
    assert credentials.find(SHA_256, "alice", is_by_token=False).authenticated is None
    configs = users(alice=ALICE)
    assert credentials.find(SHA_256, "alice", is_by_token=False).credential == ALICE
    configs = {}
    assert credentials.find(SHA_256, "alice", is_by_token=False).authenticated is None


def test_the_text_of_a_broken_credential_is_not_logged(caplog):
    Credentials(lambda: {"users/broken": {SHA_256: "salt=secret"}}).find(SHA_256, "x", is_by_token=False)
    assert "broken" in caplog.text
    assert "secret" not in caplog.text


def test_an_unknown_user_looks_the_same_to_every_broker_and_after_a_restart():
    configs = users(alice=ALICE, zoe=new_credential(SHA_256, "z"))
    first, second = (Credentials(lambda: configs).find(SHA_256, "nobody", is_by_token=False) for _ in range(2))
    assert first == second
    assert (first.credential.iterations, len(first.credential.salt)) == (ALICE.iterations, len(ALICE.salt))


def test_tokens_are_looked_up_where_tokens_are():
    found = Known(ALICE, Authenticated("owner", 5, is_by_token=True))
    credentials = Credentials(lambda: users(alice=ALICE), lambda *asked: found if asked == (SHA_256, "id") else None)
    assert credentials.find(SHA_256, "id", is_by_token=True) == found
    assert credentials.find(SHA_256, "alice", is_by_token=True).authenticated is None
    assert credentials.find(SHA_256, "id", is_by_token=False).authenticated is None


@pytest.fixture
def hash_calls(monkeypatch):
    """Counts the calls of everything that hashes, by name and by how many bytes go in."""
    calls = Counter()

    def counting(function, name):
        def counted(*arguments, **named):
            calls[name, sum(len(one) for one in arguments if isinstance(one, bytes))] += 1
            return function(*arguments, **named)

        return counted

    monkeypatch.setattr(plain, "sha256", counting(hashlib.sha256, "sha256"))
    monkeypatch.setattr(scram, "shake_256", counting(hashlib.shake_256, "shake_256"))
    monkeypatch.setattr(scram.hmac, "digest", counting(hmac.digest, "hmac"))
    monkeypatch.setattr(scram.hashlib, "new", counting(hashlib.new, "new"))
    monkeypatch.setattr(scram.hashlib, "pbkdf2_hmac", counting(hashlib.pbkdf2_hmac, "pbkdf2"))
    return calls


def test_scram_does_the_same_work_for_an_unknown_user_and_a_wrong_password(hash_calls):
    credentials = Credentials(lambda: configs)
    configs = users(alice=ALICE)
    security = ListenerSecurity(listener="EXTERNAL", mechanisms=(SHA_256,))
    work = []
    credentials.find(SHA_256, "warm", is_by_token=False)
    for user in ("alice", "cecil"):
        client = ScramClient(SHA_256, user, "wrong")
        server = new_mechanism(SHA_256, security, credentials, None)
        hash_calls.clear()
        challenge = server.respond(client.initial_response())
        first = dict(hash_calls)
        proof = client.respond(challenge)
        hash_calls.clear()
        with pytest.raises(SaslAuthenticationError):
            server.respond(proof)
        work.append((first, dict(hash_calls)))
    assert work[0] == work[1]
    assert all(work[0])
    assert not any(name == "pbkdf2" for part in work[0] for name, _ in part)


def test_plain_does_the_same_work_for_an_unknown_user_and_a_wrong_password(hash_calls):
    work = []
    for user in ("alice", "cecil"):
        hash_calls.clear()
        with pytest.raises(SaslAuthenticationError):
            PlainServer({"alice": "x" * 9}).respond(f"\0{user}\0wrong".encode())
        work.append(sum(hash_calls.values()))
    assert work == [2, 2]
