"""PLAIN and OAUTHBEARER, and the choice of a client's mechanism by its properties."""

import base64
import json
import socket
from contextlib import ExitStack
from dataclasses import replace

import pytest

from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.security.sasl.mechanisms import LOGIN_MODULES, check_login, client_mechanism
from millrace.security.sasl.names import Authenticated, invalid_credentials
from millrace.security.sasl.oauth_login import Token, TokenEndpoint, TokenSource, fetch_token, unsecured_token
from millrace.security.sasl.oauthbearer import BearerToken, OAuthBearerClient, OAuthBearerServer
from millrace.security.sasl.plain import PlainServer
from millrace_support.clock import ManualClock
from millrace_support.token_server import TokenServer

TOKEN = "abc.def.ghi"
APP = 'clientId="app" clientSecret="secret"'
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "http://x"}
NEVER_S = 1e6


def properties(mechanism, options, **others):
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{LOGIN_MODULES[mechanism]} required {options};",
        **others,
    }


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_plain_says_name_and_password_at_once():
    client = client_mechanism(properties("PLAIN", 'username="alice" password="a \\"b"'))
    assert client.initial_response() == b'\0alice\0a "b'
    assert client.respond(b"") == b""
    assert client.is_complete
    with pytest.raises(SaslAuthenticationError):
        client.respond(b"more")


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain_authenticates_a_user(message):
    server = PlainServer({"alice": "secret"})
    assert server.respond(message) == b""
    assert server.authenticated == Authenticated("alice")


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0bob\0secret",
        b"\0bob\0",
        b"\0empty\0",
        b"bob\0alice\0secret",
        b"alice",
        b"",
        b"\0\xff\0a",
        b"\0\0\0",
    ],
)
def test_plain_refuses_all_else_in_the_same_words(message):
    server = PlainServer({"alice": "secret", "empty": ""})
    with pytest.raises(SaslAuthenticationError) as refused:
        server.respond(message)
    assert str(refused.value) == str(invalid_credentials("PLAIN"))
    assert server.authenticated is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_client_may_show_a_delegation_token(mechanism):
    first = client_mechanism(properties(mechanism, 'username="a,b=c" password="x" tokenauth=true')).initial_response()
    assert first.startswith(b"n,,n=a=2Cb=3Dc,r=")
    assert first.endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "sasl.mechanism"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        (properties("PLAIN", 'username="alice"'), "password"),
        (properties("PLAIN", 'password="secret"'), "username"),
        (properties("PLAIN", 'username="a" password="secret\\0"'), "NUL"),
        (properties("SCRAM-SHA-256", "") | {"sasl.mechanism": "PLAIN"}, "PlainLoginModule"),
        (properties("OAUTHBEARER", ""), "sasl.oauthbearer.token.endpoint.url"),
        (properties("OAUTHBEARER", 'clientSecret="secret"', **ENDPOINT), "clientId"),
        (properties("OAUTHBEARER", 'clientId="secret"', **ENDPOINT), "clientSecret"),
        *(
            (properties("OAUTHBEARER", APP, **ENDPOINT, **{f"sasl.login.{name}": value}), f"sasl.login.{name}: ")
            for name in ("connect.timeout.ms", "read.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms")
            for value in ("0", "-1", "soon")
        ),
        (properties("OAUTHBEARER", "", **{"sasl.oauthbearer.token.endpoint.url": "ftp://x"}), "endpoint.url"),
        (properties("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="a" unsecuredLoginExtension_auth="b"'), "auth"),
        (properties("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_b="c"'), "number"),
    ],
)
def test_what_is_missing_is_named_without_secrets(given, named):
    with pytest.raises(InvalidConfigError, match=named) as refused:
        client_mechanism(given)
    assert "secret" not in str(refused.value)


def test_a_login_is_checked_before_a_token_is_asked_for():
    with TokenServer({"app": "secret"}) as tokens:
        url = {"sasl.oauthbearer.token.endpoint.url": tokens.token_url}
        check_login(properties("OAUTHBEARER", APP, **url))
        assert tokens.requests == []
        with pytest.raises(InvalidConfigError, match="clientSecret"):
            check_login(properties("OAUTHBEARER", 'clientId="app"', **url))
    with pytest.raises(InvalidConfigError, match="password"):
        check_login(properties("PLAIN", 'username="alice"'))


def test_an_unsecured_token_has_the_claims_of_the_login_module():
    clock = ManualClock(now_ms=1_000_000)
    options = {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginListClaim_scope": "|a|b"}
    token = unsecured_token(options | {"unsecuredLoginExtension_trace": "1"}, clock)
    assert claims(token.text) == {"sub": "alice", "scope": ["a", "b"], "iat": 1000.0, "exp": 4600.0}
    assert token.extensions == {"trace": "1"}
    assert token.text not in repr(token)


def test_a_good_token_authenticates_its_user():
    client = OAuthBearerClient(BearerToken(TOKEN, {"trace": "1"}))
    message = client.initial_response()
    assert message == b"n,,\x01auth=Bearer abc.def.ghi\x01trace=1\x01\x01"
    asked = []
    server = OAuthBearerServer(lambda text: asked.append(text) or Authenticated("alice", 5))
    assert client.respond(server.respond(message)) == b""
    assert client.is_complete
    assert (asked, server.authenticated) == ([TOKEN], Authenticated("alice", 5))


def test_a_bad_token_is_refused_in_two_steps_as_rfc_7628_says():
    def refuse(_text):
        raise SaslAuthenticationError("why")

    client, server = OAuthBearerClient(BearerToken(TOKEN)), OAuthBearerServer(refuse)
    refusal = server.respond(client.initial_response())
    assert json.loads(refusal) == {"status": "invalid_token"}
    answer = client.respond(refusal)
    assert (answer, client.is_complete, server.authenticated) == (b"\x01", False, None)
    with pytest.raises(SaslAuthenticationError):
        server.respond(answer)


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", b"n,a=bob,\x01auth=Bearer abc\x01\x01", b"\xff"],
)
def test_another_message_than_a_token_is_refused(message):
    server = OAuthBearerServer(lambda _text: Authenticated("alice"))
    with pytest.raises(SaslAuthenticationError):
        server.respond(message)
    assert server.authenticated is None


def test_a_token_comes_from_the_endpoint_once_for_many_connections():
    with TokenServer({"app": "secret"}) as tokens:
        given = properties(
            "OAUTHBEARER",
            'clientId="app" clientSecret="secret" scope="a b"',
            **{"sasl.oauthbearer.token.endpoint.url": tokens.token_url},
        )
        first, second = (client_mechanism(given).initial_response() for _ in range(2))
        assert first == second
        assert tokens.requests == [{"grant_type": "client_credentials", "scope": "a b"}]


def test_a_refused_secret_is_told_without_it():
    with TokenServer({"app": "other"}) as tokens:
        endpoint = TokenEndpoint(tokens.token_url, "app", "secret", "", 60.0, is_urlencoded=True)
        with pytest.raises(SaslAuthenticationError, match="401") as refused:
            fetch_token(endpoint)
        assert "secret" not in str(refused.value) + repr(endpoint)


@pytest.mark.parametrize(("timeout_s", "connect_timeout_s"), [(0.05, NEVER_S), (NEVER_S, 0.05), (0.05, None)])
def test_an_endpoint_that_takes_no_connection_or_sends_nothing_is_given_up(timeout_s, connect_timeout_s):
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        waiting = 2 if timeout_s == NEVER_S else 0  # so many that no other connection is made
        for _ in range(waiting):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listening.getsockname())
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/token"
        endpoint = TokenEndpoint(
            url,
            "app",
            "secret",
            "",
            timeout_s,
            is_urlencoded=False,
            connect_timeout_s=connect_timeout_s,
            retry_max_s=0.0,
        )
        with pytest.raises(SaslAuthenticationError, match="timed out"):
            fetch_token(endpoint)


def test_an_endpoint_that_fails_is_asked_again_for_as_long_as_it_may_take():
    with TokenServer({"app": "secret"}) as tokens:
        tokens.failures = 2
        endpoint = TokenEndpoint(
            tokens.token_url, "app", "secret", "", 60.0, is_urlencoded=False, retry_s=0.001, retry_max_s=NEVER_S
        )
        assert fetch_token(endpoint).life_s == tokens.life_s
        tokens.failures = 1
        with pytest.raises(SaslAuthenticationError, match="503"):
            fetch_token(replace(endpoint, retry_max_s=0.0))
        assert len(tokens.requests) == 4


def test_a_token_is_renewed_before_it_expires():
    clock, fetched = ManualClock(), iter("abc")
    source = TokenSource(lambda: Token(next(fetched), 100.0), clock)
    assert [source.token(), source.token()] == ["a", "a"]
    clock.advance(79_000)
    assert source.token() == "a"
    clock.advance(2_000)
    assert source.token() == "b"


def test_a_short_token_is_renewed_while_a_session_by_it_would_last_for_seconds():
    clock, fetched = ManualClock(), iter("abc")
    source = TokenSource(lambda: Token(next(fetched), 5.0), clock)
    assert source.token() == "a"
    clock.advance(1_900)
    assert source.token() == "a"
    clock.advance(200)
    assert source.token() == "b"


class Endpoint:
    """What is asked for tokens of 100 s; while it `fails`, each request takes 10 s."""

    def __init__(self, clock):
        self.clock, self.fails, self.asked = clock, False, 0

    def __call__(self):
        self.asked += 1
        if self.fails:
            self.clock.advance(10_000)
            raise SaslAuthenticationError(f"failure {self.asked}")
        return Token(f"token {self.asked}", 100.0)


def test_a_token_serves_to_its_end_while_the_endpoint_fails():
    clock = ManualClock()
    endpoint = Endpoint(clock)
    source = TokenSource(endpoint, clock)
    assert source.token() == "token 1"
    clock.advance(85_000)
    endpoint.fails = True
    assert [source.token(), source.token(), endpoint.asked] == ["token 1", "token 1", 2]
    clock.advance(5_000)
    with pytest.raises(SaslAuthenticationError, match="failure 2"):
        source.token()
    clock.advance(5_000)
    with pytest.raises(SaslAuthenticationError, match="failure 3"):
        source.token()
    endpoint.fails = False
    clock.advance(10_000)
    assert source.token() == "token 4"


def test_a_failure_is_told_to_all_who_ask_within_the_time_that_it_took():
    clock = ManualClock()
    endpoint = Endpoint(clock)
    endpoint.fails = True
    source = TokenSource(endpoint, clock)
    for wait_ms, number in ((0, 1), (9_000, 1), (1_000, 2)):
        clock.advance(wait_ms)
        with pytest.raises(SaslAuthenticationError, match=f"failure {number}"):
            source.token()


def test_a_token_comes_from_a_file(tmp_path):
    path = tmp_path / "a token"
    path.write_text(f"{TOKEN}\n")
    url = {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}
    assert TOKEN.encode() in client_mechanism(properties("OAUTHBEARER", "", **url)).initial_response()
    path.unlink()
    with pytest.raises(SaslAuthenticationError, match="a token"):
        client_mechanism(properties("OAUTHBEARER", "", **url))
