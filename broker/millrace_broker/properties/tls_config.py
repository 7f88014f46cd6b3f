"""The properties of TLS, under Kafka's names; `millrace.security.tls` obeys them.

Each may be given for one listener alone, as `listener.name.NAME.PROPERTY`. In this form alone those that are live can
be changed while the broker runs (KIP-226).
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.config import ConfigTable, declared_keys, setting

CLIENT_AUTH = "ssl.client.auth"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The properties as fields: `ssl_client_auth` is `ssl.client.auth`."""

    ssl_client_auth: str = setting(
        "none",
        "Whether clients show a certificate: none, requested or required.",
        choices=("required", "requested", "none"),
        is_dynamic=True,
    )
    ssl_enabled_protocols: str = setting(
        "TLSv1.2,TLSv1.3",
        "The versions of TLS that are spoken, TLSv1.2 and TLSv1.3 at most.",
        is_list=True,
        is_dynamic=True,
    )
    ssl_protocol: str = setting("TLSv1.3", "The newest version of TLS that is spoken.", is_dynamic=True)
    ssl_cipher_suites: str = setting(
        "",
        "Cipher suites that are spoken, by IANA's names; the usual ones if empty.",
        is_list=True,
        is_dynamic=True,
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "Whether a client compares the broker's name with its certificate: https, or empty for no.",
        is_dynamic=True,
    )
    ssl_keystore_type: str = setting(
        "JKS", "PEM or PKCS12; JKS stands for a file of Java that is PKCS12 inside.", is_dynamic=True
    )
    ssl_keystore_location: str = setting(
        "", "The file with the key and its certificates.", has_default=False, is_dynamic=True
    )
    ssl_keystore_password: str = setting(
        "", "The password of a PKCS12 key store.", has_default=False, is_secret=True, is_dynamic=True
    )
    ssl_keystore_key: str = setting(
        "", "The private key itself, as PEM (KIP-651).", has_default=False, is_secret=True, is_dynamic=True
    )
    ssl_keystore_certificate_chain: str = setting(
        "",
        "The certificates themselves, as PEM, that of the key first.",
        has_default=False,
        is_secret=True,
        is_dynamic=True,
    )
    ssl_key_password: str = setting(
        "", "The password of the private key.", has_default=False, is_secret=True, is_dynamic=True
    )
    ssl_truststore_type: str = setting("JKS", "PEM or PKCS12, as of the key store.", is_dynamic=True)
    ssl_truststore_location: str = setting(
        "", "The file with the certificates of trusted authorities.", has_default=False, is_dynamic=True
    )
    ssl_truststore_password: str = setting(
        "", "The password of a PKCS12 trust store.", has_default=False, is_secret=True, is_dynamic=True
    )
    ssl_truststore_certificates: str = setting(
        "", "The trusted certificates themselves, as PEM.", has_default=False, is_secret=True, is_dynamic=True
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", "What becomes of a certificate's subject as the name of a client: RULE:PATTERN/REPLACEMENT/[LU],…"
    )


TLS_CONFIG = ConfigTable(declared_keys(TlsConfig))
