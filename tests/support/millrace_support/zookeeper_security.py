"""A ZooKeeper that speaks TLS and knows users by password and by certificate, and the properties of its clients.

It has these files in its folder:

    server.pem     key and certificate of ZooKeeper
    client.pem     key and certificate of the user `kafka`; client.p12 is the same
    other.pem      key and certificate of another user, by another authority
    ca.pem         the authority; ca.p12 is the same; other_ca.pem is the other one
    server.jaas    the users that ZooKeeper knows
    client.jaas    the login of the user `kafka`
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from millrace.addresses import LOOPBACK
from millrace.ports import free_port
from millrace.zk.security import Access, ZooKeeperSecurity
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_ops.zookeeper_acls import Change, find_nodes
from millrace_support.zookeeper_sessions import started

PASSWORD = "archive secret"  # noqa: S105
USER, USER_PASSWORD = "kafka", 'zk "secret"'
SETTINGS = """\
secureClientPort={port}
secureClientPortAddress={host}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={folder}/ca.pem
ssl.trustStore.type=PEM
ssl.clientAuth=want
ssl.enabledProtocols=TLSv1.2,TLSv1.3
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
"""
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def issue(name: str, by: Issued | None = None, host: str = LOOPBACK) -> Issued:
    """Returns a certificate of an authority, or of an authority itself, for a host's address."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(hosts, critical=False)
    )
    return Issued(builder.sign(key if by is None else by.key, hashes.SHA256()), key)


def write_files(folder: Path) -> None:
    """Writes all files of the module's docstring."""
    ca, other_ca = issue("authority"), issue("other authority")
    for name, one in (("ca", ca), ("other_ca", other_ca)):
        (folder / f"{name}.pem").write_bytes(_certificate_pem(one))
    client = issue(USER, ca)
    for name, one in (("server", issue("zookeeper", ca)), ("client", client), ("other", issue("other", other_ca))):
        (folder / f"{name}.pem").write_bytes(_key_pem(one) + _certificate_pem(one))
    archive = serialization.BestAvailableEncryption(PASSWORD.encode())
    (folder / "client.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"kafka", client.key, client.certificate, [ca.certificate], archive)
    )
    (folder / "ca.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"ca", None, None, [ca.certificate], archive))
    quoted = USER_PASSWORD.replace('"', '\\"')
    (folder / "server.jaas").write_text(f'Server {{ {MODULE} required user_{USER}="{quoted}"; }};')
    (folder / "client.jaas").write_text(
        f'// for ZooKeeper\nClient {{\n  {MODULE} required\n  username="{USER}"\n  password="{quoted}";\n}};\n'
    )


class SecuredZooKeeper:
    """A server with a plain and a TLS port; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_files(folder)
        self.tls_port = free_port()
        settings = SETTINGS.format(port=self.tls_port, host=LOOPBACK, folder=folder)
        flag = f"-Djava.security.auth.login.config={folder}/server.jaas"
        self.server = EmbeddedZooKeeper(folder / "data", settings=settings, java_flags=[flag])

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    @property
    def plain_address(self) -> str:
        """Where it speaks without TLS."""
        return self.server.address

    @property
    def tls_address(self) -> str:
        """Where it speaks TLS."""
        return f"{LOOPBACK}:{self.tls_port}"

    def login(self) -> dict[str, str]:
        """Returns the properties of a client that has a password."""
        return {"java.security.auth.login.config": f"{self.folder}/client.jaas"}

    def access_of_nodes(self, chroot: str) -> tuple[dict[str, Access], list[Change]]:
        """Returns the access of all nodes of a cluster by path, and which differ from what a secured cluster has."""
        security = ZooKeeperSecurity.from_properties(self.login())
        with started(self.plain_address + chroot, security=security) as session:
            nodes = list(find_nodes(session, is_secure=True))
            return {one.path: one.found for one in nodes}, [one for one in nodes if one.found is not one.wanted]

    def tls(self, keystore: str = "", ca: str = "ca.pem") -> dict[str, str]:
        """Returns the properties of a client that speaks TLS, and shows a certificate if it has one."""
        mine = {"zookeeper.ssl.keystore.location": f"{self.folder}/{keystore}"} if keystore else {}
        opens = {"zookeeper.ssl.keystore.password": PASSWORD} if keystore.endswith(".p12") else {}
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": f"{self.folder}/{ca}",
            **({"zookeeper.ssl.truststore.password": PASSWORD} if ca.endswith(".p12") else {}),
            **mine,
            **opens,
        }


def _certificate_pem(issued: Issued) -> bytes:
    return issued.certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(issued: Issued) -> bytes:
    return issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
