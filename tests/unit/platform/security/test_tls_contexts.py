"""Contexts of TLS from Kafka's properties: every form of store works, and what is wrong is named."""

import ssl

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.tls import OF_TLS_1_3, client_context, files_of, openssl_name, server_context
from millrace_support.certificates import PASSWORD, Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
CLIENT = AUTHORITY.issue("CN=alice,O=Example", names=())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return SERVER.write(tmp_path_factory.mktemp("stores"))


def shaken(server, client, host="localhost"):
    """The client's and the server's ends after a handshake in memory."""
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


def pem_trust():
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.pem}


def pem_key(identity=SERVER):
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem,
        "ssl.keystore.certificate.chain": identity.certificate_pem,
    }


def key_stores(files):
    one_line = {name: text.replace("\n", " ") for name, text in pem_key().items()}
    return {
        "a PEM file": {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.key_store_pem)},
        "PKCS12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(files.key_store_p12),
            "ssl.keystore.password": PASSWORD,
        },
        "PKCS12 under Java's default": {
            "ssl.keystore.location": str(files.key_store_p12),
            "ssl.keystore.password": PASSWORD,
        },
        "properties": pem_key(),
        "properties on one line": one_line,
        "an encrypted key": {
            **pem_key(),
            "ssl.keystore.key": SERVER.encrypted_key_pem(),
            "ssl.key.password": PASSWORD,
        },
    }


def trust_stores(files):
    return {
        "a PEM file": {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.trust_store_pem)},
        "PKCS12": {
            "ssl.truststore.type": "pkcs12",
            "ssl.truststore.location": str(files.trust_store_p12),
            "ssl.truststore.password": PASSWORD,
        },
        "properties": pem_trust(),
    }


@pytest.mark.parametrize(
    "form",
    ["a PEM file", "PKCS12", "PKCS12 under Java's default", "properties", "properties on one line", "an encrypted key"],
)
def test_a_key_store_of_every_form(files, form):
    client, server = shaken(server_context(key_stores(files)[form]), client_context(pem_trust()))
    assert client.version() == server.version() == "TLSv1.3"


@pytest.mark.parametrize("form", ["a PEM file", "PKCS12", "properties"])
def test_a_trust_store_of_every_form(files, form):
    shaken(server_context(pem_key()), client_context(trust_stores(files)[form]))


def test_an_rsa_key():
    shaken(server_context(pem_key(AUTHORITY.issue(is_rsa=True))), client_context(pem_trust()))


def test_the_files_of_properties(files):
    both = {**key_stores(files)["PKCS12"], **trust_stores(files)["a PEM file"]}
    assert files_of(both) == (str(files.key_store_p12), str(files.trust_store_pem))
    assert files_of(pem_key()) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"ssl.keystore.location": ""},
            r"^ssl\.keystore\.location: Invalid value, a listener with TLS needs",
        ),
        ({"ssl.keystore.location": "/no/such"}, r"^ssl\.keystore\.location=/no/such: .* can't be read: No such file"),
        ({"ssl.keystore.type": "BCFKS"}, r"^ssl\.keystore\.type=BCFKS: Invalid value, expected PEM or PKCS12"),
        ({"ssl.keystore.password": "wrong"}, r"^ssl\.keystore\.location=\S+: .* ssl\.keystore\.password is not"),
        ({"ssl.keystore.key": "x"}, r"^ssl\.keystore\.key: .* ssl\.keystore\.location is given, too"),
        ({"ssl.client.auth": "required"}, r"^ssl\.client\.auth=required: .* give the authorities of clients"),
        ({"ssl.client.auth": "perhaps"}, r"^ssl\.client\.auth=perhaps: Invalid value"),
        (
            {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
            r"^ssl\.enabled\.protocols=\S+: .* TLSv1\.2 and",
        ),
        ({"ssl.protocol": "SSLv3"}, r"^ssl\.protocol=SSLv3: Invalid value"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "can't choose among the suites of TLS 1.3"),
        ({"ssl.cipher.suites": "TLS_NO_WITH_SUCH"}, "no suite of this name"),
    ],
)
def test_what_is_wrong_is_named(files, changes, said):
    with pytest.raises(InvalidConfigError, match=said) as error:
        server_context({**key_stores(files)["PKCS12"], **changes})
    assert "wrong" not in str(error.value)


def test_javas_old_format_is_refused_by_its_name(tmp_path):
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    with pytest.raises(InvalidConfigError, match=r"old format JKS is not read; make one in PKCS12: keytool"):
        server_context({"ssl.keystore.location": str(store)})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssl.keystore.key": ""}, "expected one private key in PEM, found 0"),
        ({"ssl.keystore.certificate.chain": ""}, "has no certificate"),
        ({"ssl.keystore.key": CLIENT.key_pem}, "does not go with its certificate"),
        ({"ssl.keystore.key": SERVER.encrypted_key_pem()}, "is encrypted; give ssl.key.password"),
        ({"ssl.keystore.key": SERVER.encrypted_key_pem(), "ssl.key.password": "wrong"}, "password is not its password"),
        ({"ssl.keystore.type": "PKCS12"}, "type must be PEM"),
        ({"ssl.keystore.password": "secret"}, "a PEM has no password"),
    ],
)
def test_what_is_wrong_with_a_pem_is_named(changes, said):
    with pytest.raises(InvalidConfigError, match=said) as error:
        server_context({**pem_key(), **changes})
    assert not any(secret in str(error.value) for secret in ("wrong", "BEGIN", "secret"))


@pytest.mark.parametrize(
    ("properties", "identity", "host", "reason"),
    [
        ({}, SERVER, "elsewhere.example", "Hostname mismatch"),
        ({"ssl.endpoint.identification.algorithm": ""}, SERVER, "elsewhere.example", None),
        ({}, AUTHORITY.issue(expired=True), "localhost", "expired"),
        ({}, Authority("Another CA").issue(), "localhost", "self-signed certificate in certificate chain"),
    ],
)
def test_a_client_checks_host_time_and_authority(properties, identity, host, reason):
    server, client = server_context(pem_key(identity)), client_context({**pem_trust(), **properties})
    if reason is None:
        shaken(server, client, host)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            shaken(server, client, host)


@pytest.mark.parametrize(
    ("asked", "shows", "subject"),
    [("none", True, None), ("requested", True, "alice"), ("requested", False, None), ("required", True, "alice")],
)
def test_a_client_shows_its_certificate_where_it_is_asked(asked, shows, subject):
    server = server_context({**pem_key(), **pem_trust(), "ssl.client.auth": asked})
    _, end = shaken(server, client_context({**pem_trust(), **(pem_key(CLIENT) if shows else {})}))
    shown = end.getpeercert()
    assert (dict(one[0] for one in shown["subject"])["commonName"] if shown else None) == subject


def test_a_client_without_a_certificate_is_refused_where_it_is_required():
    server = server_context({**pem_key(), **pem_trust(), "ssl.client.auth": "required"})
    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        shaken(server, client_context(pem_trust()))


@pytest.mark.parametrize(
    ("properties", "versions"),
    [
        ({}, ("TLSv1_2", "TLSv1_3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1_2", "TLSv1_2")),
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1_3", "TLSv1_3")),
        ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, ("TLSv1_2", "TLSv1_2")),
        ({"ssl.cipher.suites": ",".join(OF_TLS_1_3)}, ("TLSv1_3", "TLSv1_3")),
    ],
)
def test_the_versions_that_are_spoken(properties, versions):
    context = server_context({**pem_key(), **properties})
    assert (context.minimum_version.name, context.maximum_version.name) == versions
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_ianas_names_or_openssls(iana, openssl):
    assert openssl_name(iana) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(openssl)


def test_none_of_the_usual_suites_is_without_forward_secrecy_or_of_cbc():
    names = [one["name"] for one in server_context(pem_key()).get_ciphers()]
    assert names
    assert all(name.startswith(("TLS_", "ECDHE")) and ("GCM" in name or "CHACHA20" in name) for name in names)
