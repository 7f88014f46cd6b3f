"""A listener with TLS: whom certificates stand for, and when another context is used."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from millrace.addresses import Address
from millrace.errors import InvalidConfigError, TlsError
from millrace.security.protocols import SecurityProtocol
from millrace_broker.net.tls_listener import TlsListener
from millrace_broker.properties.listeners import Listener, own_properties
from millrace_support.certificates import Authority

AUTHORITY = Authority()
ALICE = AUTHORITY.issue("CN=alice,OU=Data,O=Example", names=()).certificate.public_bytes(Encoding.DER)


def properties(files, **more):
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.key_store_pem), **more}


def listening(given, protocol=SecurityProtocol.SSL):
    own = own_properties("OUTER", protocol, given)
    return TlsListener(Listener(name="OUTER", address=Address("h", 1), protocol=protocol, properties=own))


@pytest.fixture
def files(tmp_path):
    return AUTHORITY.issue().write(tmp_path)


def test_the_subject_of_a_certificate_is_the_clients_name(files):
    assert str(listening(properties(files)).principal(ALICE)) == "User:CN=alice,OU=Data,O=Example"
    assert str(listening(properties(files)).principal(None)) == "User:ANONYMOUS"
    rules = {"listener.name.outer.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U"}
    assert str(listening(properties(files, **rules)).principal(ALICE)) == "User:ALICE"


def test_where_sasl_says_who_a_client_is_its_certificate_does_not(files):
    assert str(listening(properties(files), SecurityProtocol.SASL_SSL).principal(ALICE)) == "User:ANONYMOUS"


def test_whom_no_rule_fits_is_refused(files):
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/"}
    with pytest.raises(TlsError, match="no rule"):
        listening(properties(files, **rules)).principal(ALICE)


def test_a_changed_file_makes_another_context(files, tmp_path):
    given = properties(files)
    one = listening(given)
    before = one.context
    assert not one.renew(given)
    assert one.context is before
    AUTHORITY.issue().write(tmp_path)
    assert one.renew(given)
    assert one.context is not before
    assert not one.renew(given)


def test_a_bad_file_leaves_the_former_context_and_is_tried_once(files):
    given = properties(files)
    one = listening(given)
    before = one.context
    files.key_store_pem.write_text("nothing")
    with pytest.raises(InvalidConfigError, match="expected one private key in PEM, found 0"):
        one.renew(given)
    assert one.context is before
    assert not one.renew(given)


def test_changed_properties_make_another_context(files, tmp_path):
    one = listening(properties(files))
    before = one.context
    other = AUTHORITY.issue().write(tmp_path, "other")
    after = properties(files, **{"listener.name.outer.ssl.keystore.location": str(other.key_store_pem)})
    one.check(after)
    assert one.context is before
    assert one.renew(after)
    with pytest.raises(InvalidConfigError, match="can't be read"):
        one.check(properties(files, **{"listener.name.outer.ssl.keystore.location": "/no/such"}))
