"""Certificates for tests of TLS, made in memory: nothing is kept longer than the test's folder.

    authority = Authority()                                     a CA that signs what follows
    server = authority.issue()                                  for localhost and 127.0.0.1
    client = authority.issue("CN=alice,OU=Data,O=Example", names=())
    expired = authority.issue(expired=True)
    elsewhere = authority.issue(names=("elsewhere.example",))   the wrong host for a client that checks it
    Authority("Another CA").issue()                             of a CA that nobody trusts

    files = server.write(folder)                                files.key_store, files.trust_store … as `Files` says

A subject is given in RFC 2253 order, as Kafka shows it: `CN=alice,OU=Data,O=Example`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

PASSWORD = "store-secret"  # noqa: S105 -- of files that live as long as a test
HOSTS = ("localhost", "127.0.0.1")
DAY = timedelta(days=1)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one holder. PKCS12 stores and the encrypted key have the password `PASSWORD`.

    `key_store_pem` has the key (PKCS8) and then the chain, as Kafka reads a key store of the type PEM.
    """

    key_store_pem: Path
    trust_store_pem: Path
    certificate: Path
    key: Path
    encrypted_key: Path
    key_store_p12: Path
    trust_store_p12: Path


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate, its key, and the authority that signed it."""

    certificate: x509.Certificate
    private_key: PrivateKey
    authority: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        """The certificate and that of its authority."""
        return _pem(self.certificate) + _pem(self.authority)

    @property
    def authority_pem(self) -> str:
        """The authority's certificate, which its peers trust."""
        return _pem(self.authority)

    @property
    def key_pem(self) -> str:
        """The key in PKCS8, not encrypted."""
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def encrypted_key_pem(self, password: str = PASSWORD) -> str:
        """Returns the key in PKCS8, encrypted."""
        encryption = BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def key_store_p12(self, password: str = PASSWORD) -> bytes:
        """Returns the key and its chain as PKCS12."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"key", self.private_key, self.certificate, [self.authority], encryption
        )

    def trust_store_p12(self, password: str = PASSWORD) -> bytes:
        """Returns the authority's certificate as PKCS12, marked as trusted so that Java reads it as such."""
        trusted = pkcs12.PKCS12Certificate(self.authority, b"authority")
        return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password.encode()))

    def write(self, folder: Path, name: str = "server") -> Files:
        """Writes all forms into the folder, over what is there under that name, and returns their paths."""
        files = Files(
            key_store_pem=folder / f"{name}.store.pem",
            trust_store_pem=folder / f"{name}.trust.pem",
            certificate=folder / f"{name}.crt",
            key=folder / f"{name}.key",
            encrypted_key=folder / f"{name}.encrypted.key",
            key_store_p12=folder / f"{name}.p12",
            trust_store_p12=folder / f"{name}.trust.p12",
        )
        files.key_store_pem.write_text(self.key_pem + self.certificate_pem)
        files.trust_store_pem.write_text(self.authority_pem)
        files.certificate.write_text(self.certificate_pem)
        files.key.write_text(self.key_pem)
        files.encrypted_key.write_text(self.encrypted_key_pem())
        files.key_store_p12.write_bytes(self.key_store_p12())
        files.trust_store_p12.write_bytes(self.trust_store_p12())
        return files


class Authority:
    """A certificate authority that lives as long as the test."""

    def __init__(self, common_name: str = "Millrace Test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name.from_rfc4514_string(f"CN={common_name}")
        now = datetime.now(UTC)
        builder = _builder(name, name, self._key, now - DAY, now + 30 * DAY)
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        self.certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """The authority's certificate."""
        return _pem(self.certificate)

    def issue(
        self,
        subject: str = "CN=localhost,O=Millrace",
        *,
        names: Iterable[str] = HOSTS,
        expired: bool = False,
        is_rsa: bool = False,
    ) -> Identity:
        """Returns a new key and its certificate, for servers and clients, on these DNS names and addresses."""
        key: PrivateKey = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        until = now - DAY if expired else now + 10 * DAY
        builder = _builder(
            x509.Name.from_rfc4514_string(subject), self.certificate.subject, key, now - 2 * DAY, until
        ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usages, critical=False)
        if alternatives := [_general_name(name) for name in names]:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return Identity(builder.sign(self._key, hashes.SHA256()), key, self.certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
