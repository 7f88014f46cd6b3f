"""A certificate authority of one's own, for a platform on one machine and for tests.

    authority = Authority.new(now_ms)            a key, and a certificate that it has signed itself
    authority.issue(("localhost",), now_ms)      a key store for a server by these names: a new key, its certificate

Everything is PEM. A key store has a key and then its certificates, as Kafka reads a key store of the type PEM. So has
the authority's own: whoever has that key store can make certificates that the authority's clients trust.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from millrace.errors import InvalidConfigError

NAME = "Millrace authority"
BEFORE = timedelta(days=1)  # clocks of clients may be behind
AUTHORITY_LASTS = timedelta(days=3650)
SERVER_LASTS = timedelta(days=825)


class Authority(NamedTuple):
    """A certificate authority for tests and development: its key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, now_ms: int) -> Self:
        """Returns an authority with a new key and a certificate that it signed itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name.from_rfc4514_string(f"CN={NAME}")
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(name, name, key, now_ms, AUTHORITY_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def from_pem(cls, text: str) -> Self:
        """Returns the authority whose key and certificate are in a PEM text; raises InvalidConfigError."""
        try:
            key = load_pem_private_key(text.encode(), None)
            certificate = x509.load_pem_x509_certificate(text.encode())
        except ValueError as error:
            raise InvalidConfigError(f"the key store of the authority can't be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidConfigError("the key store of the authority has a key of another kind")
        return cls(key, certificate)

    @property
    def key_store(self) -> str:
        """The authority's key and certificate, as a text in PEM format."""
        return _key_store(self.key, self.certificate)

    @property
    def trusted(self) -> str:
        """The authority's certificate, as a text in PEM format, for the trust stores of clients."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, hosts: Iterable[str], now_ms: int) -> str:
        """Returns a new key and certificate, as PEM, for a server that has these host names and IP addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_general_name(one) for one in dict.fromkeys(hosts)]
        certificate = (
            _builder(
                x509.Name.from_rfc4514_string("CN=broker,O=Millrace"),
                self.certificate.subject,
                key,
                now_ms,
                SERVER_LASTS,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return _key_store(key, certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now_ms: int, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + lasts)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_store(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> str:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (pem + certificate.public_bytes(Encoding.PEM)).decode()
