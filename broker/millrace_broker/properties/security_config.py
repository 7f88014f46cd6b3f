"""The properties of SASL, TLS and delegation tokens, under Kafka's names.

`security.authentication` obeys those of SASL. Those of `LOGIN` say where the broker has the token by which it logs in
to others. Each may be given for one listener alone, as `listener.name.NAME.PROPERTY`, and for one mechanism on one
listener, as `listener.name.NAME.MECHANISM.PROPERTY`. `sasl.jaas.config` is given in the latter form alone.

`millrace.security.tls` obeys those of TLS. Each may be given for one listener alone, as `listener.name.NAME.PROPERTY`.
In this form alone those that are live can be changed while the broker runs (KIP-226).

Without a secret key there are no delegation tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from millrace.config import MAX_INT, ConfigTable, build, declared_keys, setting
from millrace_broker.properties.kafka_properties import BROKER, known_rules

CLIENT_AUTH = "ssl.client.auth"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The properties of TLS as fields: the field `ssl_client_auth` is the property `ssl.client.auth`."""

    ssl_client_auth: str = setting("none", "Whether clients show a certificate: none, requested or required.")
    ssl_enabled_protocols: str = setting(
        "TLSv1.2,TLSv1.3", "The versions of TLS that are spoken, TLSv1.2 and TLSv1.3 at most."
    )
    ssl_protocol: str = setting("TLSv1.3", "The newest version of TLS that is spoken.")
    ssl_cipher_suites: str = setting("", "Cipher suites that are spoken, by IANA's names; the usual ones if empty.")
    ssl_endpoint_identification_algorithm: str = setting(
        "https", "Whether a client compares the broker's name with its certificate: https, or empty for no."
    )
    ssl_keystore_type: str = setting("JKS", "PEM or PKCS12; JKS stands for a file of Java that is PKCS12 inside.")
    ssl_keystore_location: str = setting("", "The file with the key and its certificates.")
    ssl_keystore_password: str = setting("", "The password of a PKCS12 key store.")
    ssl_keystore_key: str = setting("", "The private key itself, as PEM (KIP-651).")
    ssl_keystore_certificate_chain: str = setting("", "The certificates themselves, as PEM, that of the key first.")
    ssl_key_password: str = setting("", "The password of the private key.")
    ssl_truststore_type: str = setting("JKS", "PEM or PKCS12, as of the key store.")
    ssl_truststore_location: str = setting("", "The file with the certificates of trusted authorities.")
    ssl_truststore_password: str = setting("", "The password of a PKCS12 trust store.")
    ssl_truststore_certificates: str = setting("", "The trusted certificates themselves, as PEM.")
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", "What becomes of a certificate's subject as the name of a client: RULE:PATTERN/REPLACEMENT/[LU],…"
    )


TLS_CONFIG = ConfigTable(declared_keys(TlsConfig, known_rules(BROKER)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """The properties of delegation tokens as fields, by their names with `_` in place of `.`."""

    delegation_token_secret_key: str = setting(
        "",
        "The key by which the secrets of delegation tokens are made, the same on all brokers; no tokens without one.",
    )
    delegation_token_master_key: str = setting("", "An older name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms: int = setting(
        7 * 24 * 3_600_000, "Milliseconds after which a delegation token can't be renewed any more."
    )
    delegation_token_expiry_time_ms: int = setting(
        24 * 3_600_000, "Milliseconds after which a delegation token has to be renewed."
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, "Milliseconds between two looks for delegation tokens to remove."
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Returns the given properties that this class declares, parsed; raises InvalidConfigError for a bad value."""
        return build(cls, TOKEN_CONFIG.parse(TOKEN_CONFIG.known(properties)))

    @property
    def key(self) -> str:
        """Returns the key that the HMACs of delegation tokens are made with; "" where there are no tokens."""
        return self.delegation_token_secret_key or self.delegation_token_master_key


TOKEN_CONFIG = ConfigTable(declared_keys(TokenConfig, known_rules(BROKER)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The properties of SASL as fields: `sasl_enabled_mechanisms` is the property `sasl.enabled.mechanisms`."""

    sasl_enabled_mechanisms: str = setting(
        "GSSAPI",
        "The mechanisms that a listener with SASL offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        is_dynamic=False,
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
        100, "Milliseconds after which a failed authentication is answered and closed."
    )
    sasl_server_max_receive_size: int = setting(
        512 << 10, "The largest frame that is taken in before somebody has authenticated."
    )
    sasl_server_callback_handler_class: str = setting(
        "", "Which of Kafka's two checks of OAUTHBEARER tokens is meant: that of signed ones, or of unsecured ones."
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "", "Where the keys are by which tokens are checked: https, http or file."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "Milliseconds between two looks for those keys."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, "Milliseconds after which a look that failed is repeated, doubled each time."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(10_000, "The most that they are doubled to.")
    sasl_oauthbearer_expected_audience: str = setting("", "Audiences of which a token must name one; none if empty.")
    sasl_oauthbearer_expected_issuer: str = setting("", "The issuer that a token must name; any if empty.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, "Seconds by which the clocks of broker and issuer may differ."
    )
    sasl_oauthbearer_scope_claim_name: str = setting("scope", "The claim of a token that lists its scopes.")
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim of a token that names the user.")
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "", "Where the broker has the tokens by which it logs in to others: https, http or file."
    )
    sasl_login_callback_handler_class: str = setting(
        "", "Kafka's handler that asks for tokens by OAuth, which is done without the property, too."
    )
    sasl_login_connect_timeout_ms: int = setting(
        10_000, "Milliseconds that a connection to the endpoint of tokens may take; those of an answer, if not given."
    )
    sasl_login_read_timeout_ms: int = setting(10_000, "Milliseconds that an answer of the endpoint of tokens may take.")
    sasl_login_retry_backoff_ms: int = setting(
        100, "Milliseconds after which a request for a token that failed is repeated, doubled each time."
    )
    sasl_login_retry_backoff_max_ms: int = setting(10_000, "Milliseconds within which such a request is repeated.")


SASL_CONFIG = ConfigTable(declared_keys(SaslConfig, known_rules(BROKER)))
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
