"""What a listener's properties say of SASL."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace_broker.security.authentication.listener_security import (
    SIGNED_HANDLERS,
    UNSECURED_HANDLER,
    listener_security,
)

PLAIN_JAAS = f'{LOGIN_MODULES["PLAIN"]} required username="admin" password="p" user_alice="secret" user_bob="b";'
OAUTH_JAAS = f"{LOGIN_MODULES['OAUTHBEARER']} required;"
PLAIN = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": PLAIN_JAAS}
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": OAUTH_JAAS,
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
}


def test_users_of_plain_are_options_of_its_login_module():
    security = listener_security("EXTERNAL", PLAIN)
    assert security.mechanisms == ("PLAIN",)
    assert security.passwords == {"alice": "secret", "bob": "b"}
    assert (security.max_receive_bytes, security.failure_delay_ms) == (524_288, 100)
    assert "secret" not in repr(security)


def test_a_property_of_one_mechanism_counts_before_that_of_all():
    given = PLAIN | {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN,SCRAM-SHA-512",
        "connections.max.reauth.ms": "2000",
        "scram-sha-256.connections.max.reauth.ms": "3000",
        "sasl.server.max.receive.size": "1024",
        "connection.failed.authentication.delay.ms": "0",
    }
    security = listener_security("EXTERNAL", given)
    assert security.max_reauth_ms == {"SCRAM-SHA-256": 3000, "PLAIN": 2000, "SCRAM-SHA-512": 2000}
    assert (security.max_receive_bytes, security.failure_delay_ms) == (1024, 0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": ","}, r"sasl\.enabled\.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, r"listener\.name\.external\.plain\.sasl\.jaas\.config is missing"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": PLAIN_JAAS}, r"plain\.sasl\.jaas\.config is missing"),
        (PLAIN | {"plain.sasl.jaas.config": OAUTH_JAAS}, "PlainLoginModule"),
        (PLAIN | {"connections.max.reauth.ms": "soon"}, r"soon for configuration connections\.max\.reauth\.ms"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": ""}, r"sasl\.oauthbearer\.jwks\.endpoint\.url"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "ldap://x"}, r"sasl\.oauthbearer\.jwks\.endpoint\.url=ldap"),
        (OAUTH | {"sasl.server.callback.handler.class": "com.example.Mine"}, "com.example.Mine"),
        (
            OAUTH | {"sasl.oauthbearer.clock.skew.seconds": "a"},
            r"a for configuration sasl\.oauthbearer\.clock\.skew\.seconds",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named_without_secrets(given, named):
    with pytest.raises(InvalidConfigError, match=named) as refused:
        listener_security("EXTERNAL", given)
    assert "secret" not in str(refused.value)


def test_signed_tokens_are_the_rule():
    given = OAUTH | {
        "sasl.oauthbearer.expected.audience": "a, b",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.sub.claim.name": "client",
        "sasl.server.callback.handler.class": SIGNED_HANDLERS[0],
    }
    rules = listener_security("EXTERNAL", given).tokens
    assert (rules.keys_url, rules.issuer, rules.audiences) == ("https://issuer/keys", "https://issuer", ("a", "b"))
    assert (rules.sub_claim, rules.scope_claim, rules.clock_skew_s, rules.refresh_s) == ("client", "scope", 30, 3600)


def test_unsigned_tokens_are_taken_only_where_kafkas_handler_for_them_is_named():
    given = OAUTH | {
        "oauthbearer.sasl.server.callback.handler.class": UNSECURED_HANDLER,
        "oauthbearer.sasl.jaas.config": OAUTH_JAAS.replace(
            ";", ' unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="3000";'
        ),
    }
    rules = listener_security("EXTERNAL", given).tokens
    assert (rules.keys_url, rules.required_scopes, rules.clock_skew_s) == (None, ("a", "b"), 3.0)
    with pytest.raises(InvalidConfigError):
        listener_security("EXTERNAL", {name: value for name, value in OAUTH.items() if "jwks" not in name})
