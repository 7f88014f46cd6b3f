"""Makes the TLS context of connections to ZooKeeper from Kafka's properties `zookeeper.ssl.*`.

    key store      PEM: a private key and its certificates in one file; PKCS12: the same in one archive
    trust store    PEM or PKCS12: the certificates of authorities; without one, those that the machine trusts
    type           the property, or else the file's ending: .pem, .p12, .pfx, .pkcs12; JKS is refused
    protocols      zookeeper.ssl.enabled.protocols, or else zookeeper.ssl.protocol; none older than TLSv1.2

OpenSSL takes a private key from a file alone: that of a PKCS12 archive lies for a moment in a temporary file, which
only its owner can read, encrypted with a password that is never stored.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import InvalidConfigError
from millrace.zk.security_config import ZooKeeperSecurityConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
TYPE_BY_ENDING = {".pem": PEM, ".crt": PEM, ".p12": PKCS12, ".pfx": PKCS12, ".pkcs12": PKCS12, ".jks": JKS}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
ANY_VERSION = "TLS"
SUITES = {
    f"TLS_{kind}_WITH_{cipher}_{digest}": f"{kind.replace('_', '-')}-{name}"
    for kind in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
    for cipher, digest, name in (
        ("AES_128_GCM", "SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM", "SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305", "SHA256", "CHACHA20-POLY1305"),
    )
}
SUITES_OF_1_3 = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}


class Store(NamedTuple):
    """A key store or a trust store: the beginning of its properties' names, and their values."""

    name: str
    location: str
    password: str
    type: str

    @property
    def format(self) -> str:
        """PEM or PKCS12; InvalidConfigError for any other."""
        found = self.type.upper() or TYPE_BY_ENDING.get(Path(self.location).suffix.lower(), "")
        if found in (PEM, PKCS12):
            return found
        if found == JKS:
            raise InvalidConfigError(
                f"{self.place}: a JKS store is not read; turn it into PKCS12: keytool -importkeystore "
                "-deststoretype PKCS12"
            )
        raise InvalidConfigError(f"{self.place}: give {self.name}.type, PEM or PKCS12; {found!r} is neither")

    @property
    def place(self) -> str:
        """The property that names the file, and the file."""
        return f"{self.name}.location={self.location}"

    def read(self) -> bytes:
        """Returns the file's bytes. InvalidConfigError."""
        try:
            return Path(self.location).read_bytes()
        except OSError as error:
            raise InvalidConfigError(f"{self.place}: {error.strerror}") from None


def tls_context(config: ZooKeeperSecurityConfig) -> ssl.SSLContext:
    """Returns the context; InvalidConfigError names the property and the file, and has no secret in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.zookeeper_ssl_endpoint_identification_algorithm.upper() == "HTTPS"
    _limit_versions(context, config)
    if config.zookeeper_ssl_cipher_suites:
        _limit_suites(context, config.zookeeper_ssl_cipher_suites)
    _trust(
        context,
        Store(
            "zookeeper.ssl.truststore",
            config.zookeeper_ssl_truststore_location,
            config.zookeeper_ssl_truststore_password,
            config.zookeeper_ssl_truststore_type,
        ),
    )
    if config.zookeeper_ssl_keystore_location:
        _identify(
            context,
            Store(
                "zookeeper.ssl.keystore",
                config.zookeeper_ssl_keystore_location,
                config.zookeeper_ssl_keystore_password,
                config.zookeeper_ssl_keystore_type,
            ),
        )
    return context


def _limit_versions(context: ssl.SSLContext, config: ZooKeeperSecurityConfig) -> None:
    name = "zookeeper.ssl.enabled.protocols" if config.zookeeper_ssl_enabled_protocols else "zookeeper.ssl.protocol"
    text = config.zookeeper_ssl_enabled_protocols or config.zookeeper_ssl_protocol
    named = set(VERSIONS) if text == ANY_VERSION else {one.strip() for one in text.split(",")}
    unknown = named - set(VERSIONS)
    if unknown:
        raise InvalidConfigError(f"{name}={text}: {', '.join(sorted(unknown))} is not served, only TLSv1.2 and TLSv1.3")
    versions = sorted(VERSIONS[one] for one in named)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _limit_suites(context: ssl.SSLContext, text: str) -> None:
    """Leaves the suites of TLS 1.2 that are named; those of TLS 1.3 are always offered."""
    named = [one.strip() for one in text.split(",")]
    unknown = [one for one in named if one not in SUITES and one not in SUITES_OF_1_3]
    if unknown:
        raise InvalidConfigError(f"zookeeper.ssl.cipher.suites={text}: {unknown[0]} is not served")
    older = [SUITES[one] for one in named if one in SUITES]
    if older:
        context.set_ciphers(":".join(older))
    elif context.minimum_version == ssl.TLSVersion.TLSv1_2:
        raise InvalidConfigError(
            f"zookeeper.ssl.cipher.suites={text}: all are of TLSv1.3; set zookeeper.ssl.enabled.protocols=TLSv1.3"
        )


def _trust(context: ssl.SSLContext, store: Store) -> None:
    if not store.location:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    content = store.read()
    try:
        text = content.decode() if store.format == PEM else _certificates(_opened(store, content))
        context.load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError):
        raise InvalidConfigError(f"{store.place}: there is no certificate of an authority in it") from None


def _identify(context: ssl.SSLContext, store: Store) -> None:
    content = store.read()
    if store.format == PEM:
        _load_chain(context, store, store.location, store.password)
        return
    password = secrets.token_hex(32)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # which only its owner can read
        file.write(_with_key(store, _opened(store, content), password))
        file.flush()
        _load_chain(context, store, file.name, password)


def _load_chain(context: ssl.SSLContext, store: Store, path: str, password: str) -> None:
    try:
        context.load_cert_chain(path, password=password)
    except (ssl.SSLError, ValueError) as error:
        reason = "its password is wrong, or " if password else "it is encrypted and no password is given, or "
        raise InvalidConfigError(f"{store.place}: {reason}it is no key with its certificates") from error


def _opened(store: Store, content: bytes) -> PKCS12KeyAndCertificates:
    # Few processes have a PKCS12 archive to open, and the library takes a tenth of a second to load.
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

    try:
        return pkcs12.load_pkcs12(content, store.password.encode() or None)
    except ValueError:
        raise InvalidConfigError(
            f"{store.place}: {store.name}.password does not open it, or it is no PKCS12 archive"
        ) from None


def _certificates(archive: PKCS12KeyAndCertificates) -> str:
    found = [archive.cert, *archive.additional_certs]
    return "".join(_pem(one.certificate.public_bytes) for one in found if one is not None)


def _pem(encoded: Callable[..., bytes]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return encoded(Encoding.PEM).decode()


def _with_key(store: Store, archive: PKCS12KeyAndCertificates, password: str) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    if archive.key is None or archive.cert is None:
        raise InvalidConfigError(f"{store.place}: there is no private key with its certificate in it")
    key = archive.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    return key + _certificates(archive).encode()
