"""The security of a client that runs for long: what is in its files now is what its next login uses."""

import logging
import socket

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.client_config import read_client_security
from millrace.security.renewed_security import RenewedSecurity
from millrace_support.certificates import Authority

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="{}";'
PLAIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={}\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "client.properties"


@pytest.fixture
def renewed(file):
    file.write_text(PLAIN.format(LOGIN.format("alice", "old")))
    return RenewedSecurity(lambda: read_client_security(str(file), environment={}))


def test_a_login_has_the_credentials_that_the_file_has_now(file, renewed):
    assert renewed.new_mechanism().initial_response() == b"\0alice\0old"
    file.write_text(PLAIN.format(LOGIN.format("bob", "new")))
    assert renewed.new_mechanism().initial_response() == b"\0bob\0new"


WRONG = {
    "nothing any more": None,
    "half of it": PLAIN.format("")[:60],
    "a login module without its end": PLAIN.format(LOGIN.format("alice", "new")[:-1]),
    "an unknown property": "security.protokol=SSL\n",
    "nothing in it": "",
    "TLS in place of the login": "security.protocol=SSL\n",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_can_not_be_read_is_told_once_and_changes_nothing(file, renewed, wrong, caplog):
    text = WRONG[wrong]
    file.unlink() if text is None else file.write_text(text)
    with caplog.at_level(logging.WARNING):
        found = {renewed.new_mechanism().initial_response() for _ in range(3)}
    assert found == {b"\0alice\0old"}
    [told] = caplog.records
    assert "client.properties" in told.getMessage() or "security.protocol was SASL_PLAINTEXT" in told.getMessage()
    file.write_text(PLAIN.format(LOGIN.format("alice", "new")))
    assert renewed.new_mechanism().initial_response() == b"\0alice\0new"


def test_the_first_read_has_to_be_right(tmp_path):
    with pytest.raises(InvalidConfigError):
        RenewedSecurity(lambda: read_client_security(str(tmp_path / "nowhere"), environment={}))


def test_a_connection_has_the_certificates_and_the_protocol_that_files_have_now(file, tmp_path):
    file.write_text("security.protocol=PLAINTEXT\n")
    renewed = RenewedSecurity(lambda: read_client_security(str(file), environment={}))
    one, other = socket.socketpair()
    with one, other:
        assert renewed.secure(one, "host") is one
        store = Authority().issue().write(tmp_path, "server").trust_store_pem
        file.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={store}\n")
        other.close()
        with pytest.raises(OSError, match=r".*"):
            renewed.secure(one, "host")
    assert renewed.context is not None
    assert renewed.protocol.uses_tls
