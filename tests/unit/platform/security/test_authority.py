"""An authority of one's own: what it issues is trusted by who trusts it, for its hosts alone, and for a time."""

import ssl
from datetime import UTC, datetime

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.authority import Authority
from millrace.security.tls import client_context, server_context

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def authority():
    return Authority.new(NOW_MS)


def handshake(key_store, trusted, host):
    """Two ends in memory: it returns once they have agreed, and raises what the client does not accept."""
    server = server_context({"ssl.keystore.type": "PEM", **parts(key_store)})
    client = client_context({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted})
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass


def parts(key_store):
    key, _, chain = key_store.partition("-----BEGIN CERTIFICATE")
    return {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_server_is_trusted_by_each_of_its_names(authority, host):
    handshake(authority.issue(("localhost", "127.0.0.1", "::1", "localhost"), NOW_MS), authority.trusted, host)


def test_it_is_not_trusted_by_another_name_or_by_others(authority):
    key_store = authority.issue(("localhost",), NOW_MS)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(key_store, authority.trusted, "example.com")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(key_store, Authority.new(NOW_MS).trusted, "localhost")


def test_a_certificate_ends(authority):
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(authority.issue(("localhost",), NOW_MS - 826 * DAY_MS), authority.trusted, "localhost")


def test_its_key_store_is_read_again(authority):
    again = Authority.from_pem(authority.key_store)
    assert again.trusted == authority.trusted
    handshake(again.issue(("localhost",), NOW_MS), authority.trusted, "localhost")


def test_another_file_is_refused():
    with pytest.raises(InvalidConfigError, match="the key store of the authority can't be read"):
        Authority.from_pem("nothing")
