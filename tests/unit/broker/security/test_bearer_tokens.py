"""Tokens of OAUTHBEARER: signed ones by their keys, and unsigned ones where the listener allows them."""

import base64
import json
from contextlib import suppress

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import SaslAuthenticationError
from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.oauth_login import unsecured_token
from millrace_broker.net.json_web_keys import parse_keys
from millrace_broker.security.authentication.bearer_tokens import NoKeys, check_token
from millrace_broker.security.authentication.listener_security import TokenRules
from millrace_support.clock import ManualClock
from millrace_support.token_server import AUDIENCE, ISSUER, TokenServer

NOW_S = 1_700_000_000
TIMES = {"iat": NOW_S, "exp": NOW_S + 60}
SIGNED = TokenRules(keys_url="https://issuer/keys", issuer=ISSUER, audiences=(AUDIENCE, "other"))
UNSIGNED = TokenRules(keys_url=None, clock_skew_s=0)


class Keys:
    """The keys of a token server."""

    def __init__(self, tokens):
        self._keys = parse_keys(json.dumps(tokens.keys()).encode())

    def find(self, key_id):
        return self._keys.get(key_id)


@pytest.fixture(scope="module")
def tokens():
    with TokenServer({}) as server:
        yield server


@pytest.fixture(scope="module")
def keys(tokens):
    return Keys(tokens)


def test_a_signed_token_names_its_user_and_its_end(tokens, keys):
    assert check_token(tokens.token(**TIMES), SIGNED, keys, NOW_S * 1000) == Authenticated("alice", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "somebody"},
        {"aud": None},
        {"exp": NOW_S - 31},
        {"exp": None},
        {"exp": 10**12},
        {"iat": None},
        {"nbf": NOW_S + 31},
        {"sub": None},
        {"sub": " "},
        {"sub": 5},
    ],
)
def test_a_signed_token_with_another_claim_is_refused(tokens, keys, claims):
    with pytest.raises(SaslAuthenticationError):
        check_token(tokens.token(**TIMES | claims), SIGNED, keys, NOW_S * 1000)


def test_clocks_may_differ_by_as_much_as_the_property_says(tokens, keys):
    late = tokens.token(**TIMES | {"exp": NOW_S - 29, "nbf": NOW_S + 29})
    assert check_token(late, SIGNED, keys, NOW_S * 1000).user == "alice"


def test_the_claim_of_the_user_has_another_name_where_the_property_says_so(tokens, keys):
    rules = TokenRules(keys_url="x", sub_claim="client_id", audiences=(AUDIENCE,))
    assert check_token(tokens.token(**TIMES, client_id="app"), rules, keys, NOW_S * 1000).user == "app"


def test_a_key_that_is_not_known_is_refused(tokens, keys):
    with TokenServer({}) as other, pytest.raises(SaslAuthenticationError):
        check_token(other.token(**TIMES), SIGNED, keys, NOW_S * 1000)


@pytest.mark.parametrize("algorithm", ["HS256", "none"])
def test_a_token_that_everyone_can_make_is_refused(keys, algorithm):
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", **TIMES}
    secret = None if algorithm == "none" else "public" * 10
    token = jwt.encode(claims, secret, algorithm, headers={"kid": "key-0"})
    with pytest.raises(SaslAuthenticationError):
        check_token(token, SIGNED, keys, NOW_S * 1000)


def unsigned(**options):
    return unsecured_token({"unsecuredLoginStringClaim_sub": "alice", **options}, ManualClock(NOW_S * 1000)).text


def test_an_unsigned_token_is_taken_where_the_listener_allows_it():
    assert check_token(unsigned(), UNSIGNED, NoKeys(), NOW_S * 1000) == Authenticated("alice", (NOW_S + 3600) * 1000)


def test_a_scope_may_be_required_of_an_unsigned_token():
    rules = TokenRules(keys_url=None, required_scopes=("read",))
    for scopes in ("|write|read", "|read"):
        check_token(unsigned(unsecuredLoginListClaim_scope=scopes), rules, NoKeys(), NOW_S * 1000)
    check_token(unsigned(unsecuredLoginStringClaim_scope="write read"), rules, NoKeys(), NOW_S * 1000)
    for options in ({}, {"unsecuredLoginStringClaim_scope": "write"}, {"unsecuredLoginNumberClaim_scope": "1"}):
        with pytest.raises(SaslAuthenticationError):
            check_token(unsigned(**options), rules, NoKeys(), NOW_S * 1000)


def test_an_unsigned_listener_takes_no_signed_token_unchecked(tokens):
    with pytest.raises(SaslAuthenticationError):
        check_token(tokens.token(**TIMES), UNSIGNED, NoKeys(), NOW_S * 1000)


def test_an_unsigned_token_expires():
    with pytest.raises(SaslAuthenticationError):
        check_token(unsigned(unsecuredLoginLifetimeSeconds="10"), UNSIGNED, NoKeys(), (NOW_S + 10) * 1000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(
    header=st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit"]), JSON),
    claims=st.dictionaries(st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope"]), JSON),
    is_signed=st.booleans(),
)
def test_whatever_a_token_says_it_is_good_or_refused(keys, header, claims, is_signed):
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in (header, claims)]
    with suppress(SaslAuthenticationError):
        check_token(f"{'.'.join(parts)}.", SIGNED if is_signed else UNSIGNED, keys, NOW_S * 1000)


@given(st.text(max_size=40))
def test_another_text_than_a_token_is_refused(text):
    with pytest.raises(SaslAuthenticationError):
        check_token(text, UNSIGNED, NoKeys(), NOW_S * 1000)
