"""Tests of the certificates that other tests use: OpenSSL takes them, and each is what its test calls it."""

import ssl
from datetime import UTC, datetime

import pytest

from millrace_support.certificates import PASSWORD, Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()


def shaken(server, client, host="localhost"):
    """Returns the client's and server's ends after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname=host)
    server_end = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client_end, server_end):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client_end, server_end


def contexts(identity, folder, trusted=AUTHORITY):
    files = identity.write(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.encrypted_key, PASSWORD)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=trusted.pem)
    return server, client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_servers_certificate_is_good_for_the_loopback(tmp_path, host):
    client, server = shaken(*contexts(SERVER, tmp_path), host=host)
    assert client.version() == server.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("identity", "trusted", "reason"),
    [
        (AUTHORITY.issue(expired=True), AUTHORITY, "expired"),
        (AUTHORITY.issue(names=("elsewhere.example",)), AUTHORITY, "Hostname mismatch"),
        (SERVER, Authority("Another CA"), "unable to get local issuer|self-signed"),
    ],
    ids=["expired", "another host", "another authority"],
)
def test_a_bad_certificate_is_bad_in_the_way_that_its_test_names(tmp_path, identity, trusted, reason):
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        shaken(*contexts(identity, tmp_path, trusted))


def test_a_certificate_has_its_subject_and_times():
    certificate = AUTHORITY.issue("CN=alice,OU=Data,O=Example", names=()).certificate
    assert certificate.subject.rfc4514_string() == "CN=alice,OU=Data,O=Example"
    assert certificate.not_valid_before_utc < datetime.now(UTC) < certificate.not_valid_after_utc
