"""The properties of SASL, under Kafka's names; `security.authentication` obeys them.

Those of `LOGIN` say where the broker has the token by which it logs in to others.

Each may be given for one listener alone, as `listener.name.NAME.PROPERTY`, and for one mechanism on one listener, as
`listener.name.NAME.MECHANISM.PROPERTY`. `sasl.jaas.config` is given in the latter form alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.config import MAX_INT, ConfigTable, ConfigType, declared_keys, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The properties as fields: `sasl_enabled_mechanisms` is `sasl.enabled.mechanisms`."""

    sasl_enabled_mechanisms: str = setting(
        "GSSAPI",
        "The mechanisms that a listener with SASL offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        is_list=True,
    )
    connections_max_reauth_ms: int = setting(
        0, "Milliseconds after which a client has to authenticate again; 0: never, unless its token expires."
    )
    connections_max_login_ms: int = setting(
        30_000,
        "Milliseconds within which a client has to authenticate, its TLS handshake included.",
        minimum=1,
        maximum=MAX_INT,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "Milliseconds after which a failed authentication is answered and closed.", minimum=0, maximum=MAX_INT
    )
    sasl_server_max_receive_size: int = setting(
        512 << 10, "The largest frame that is taken in before somebody has authenticated.", maximum=MAX_INT
    )
    sasl_server_callback_handler_class: str = setting(
        "",
        "Which of Kafka's two checks of OAUTHBEARER tokens is meant: that of signed ones, or of unsecured ones.",
        has_default=False,
        kind=ConfigType.CLASS,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "", "Where the keys are by which tokens are checked: https, http or file.", has_default=False
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "Milliseconds between two looks for those keys."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, "Milliseconds after which a look that failed is repeated, doubled each time."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(10_000, "The most that they are doubled to.")
    sasl_oauthbearer_expected_audience: str = setting(
        "", "Audiences of which a token must name one; none if empty.", is_list=True, has_default=False
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "", "The issuer that a token must name; any if empty.", has_default=False
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, "Seconds by which the clocks of broker and issuer may differ.", maximum=MAX_INT
    )
    sasl_oauthbearer_scope_claim_name: str = setting("scope", "The claim of a token that lists its scopes.")
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim of a token that names the user.")
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "", "Where the broker has the tokens by which it logs in to others: https, http or file.", has_default=False
    )
    sasl_login_callback_handler_class: str = setting(
        "",
        "Kafka's handler that asks for tokens by OAuth, which is done without the property, too.",
        has_default=False,
        kind=ConfigType.CLASS,
    )
    sasl_login_connect_timeout_ms: int = setting(
        10_000,
        "Milliseconds that a connection to the endpoint of tokens may take; those of an answer, if not given.",
        maximum=MAX_INT,
        has_default=False,
    )
    sasl_login_read_timeout_ms: int = setting(
        10_000, "Milliseconds that an answer of the endpoint of tokens may take.", maximum=MAX_INT, has_default=False
    )
    sasl_login_retry_backoff_ms: int = setting(
        100, "Milliseconds after which a request for a token that failed is repeated, doubled each time."
    )
    sasl_login_retry_backoff_max_ms: int = setting(10_000, "Milliseconds within which such a request is repeated.")


SASL_CONFIG = ConfigTable(declared_keys(SaslConfig))
RENEWALS = frozenset({
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
})  # fmt: skip
"""Properties of Kafka that say how its own login is renewed: they restrict nobody, and have no effect here."""
LOGIN = ("sasl.oauthbearer.token.endpoint.url", *(name for name in SASL_CONFIG.keys if name.startswith("sasl.login.")))
