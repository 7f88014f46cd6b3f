"""The properties by which a session with ZooKeeper is secured, and the access of nodes by their paths."""

import os
import ssl
import tempfile

import pytest

from millrace.errors import InvalidConfigError
from millrace.zk.security import UNSECURED, Access, ZooKeeperSecurity, access
from millrace_support.zookeeper_security import PASSWORD, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys")
    write_files(path)
    return path


def context(**properties):
    named = {f"zookeeper.ssl.{name.replace('_', '.')}": value for name, value in properties.items()}
    return ZooKeeperSecurity.from_properties({"zookeeper.ssl.client.enable": "true", **named}).tls


def refusal(**properties):
    with pytest.raises(InvalidConfigError) as raised:
        context(**properties)
    return str(raised.value)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", Access.CREATORS),
        ("/brokers/ids/1", Access.CREATORS),
        ("/config", Access.CREATORS),
        ("/config/topics/t", Access.CREATORS),
        ("/config/users", Access.SECRET),
        ("/config/users/alice/clients", Access.SECRET),
        ("/config/brokers/1", Access.SECRET),
        ("/delegation_token", Access.CREATORS),
        ("/delegation_token/tokens/id", Access.SECRET),
        ("/delegation_token/token_changes", Access.CREATORS),
        ("/consumers", Access.OPEN),
        ("/consumers/group", Access.CREATORS),
    ],
)
def test_nodes_have_the_access_that_kafka_gives_them(path, expected):
    assert access(path) is expected
    assert UNSECURED.access(path) is Access.OPEN


def test_nothing_is_secured_unless_it_is_asked_for():
    assert ZooKeeperSecurity.from_properties({"zookeeper.connect": "x"}) == UNSECURED


def test_nodes_can_be_given_only_to_an_identity(folder):
    with pytest.raises(InvalidConfigError, match=r"zookeeper.set.acl=true: Invalid value, there is no identity"):
        ZooKeeperSecurity.from_properties({"zookeeper.set.acl": "true"})
    key = {"zookeeper.ssl.keystore.location": f"{folder}/client.pem"}  # which is not shown without TLS
    with pytest.raises(InvalidConfigError, match="no identity"):
        ZooKeeperSecurity.from_properties({"zookeeper.set.acl": "true", **key})


def test_netty_is_asked_for_by_name_and_nio_has_no_tls():
    assert context() is not None
    with pytest.raises(InvalidConfigError, match="for TLS it has to be"):
        ZooKeeperSecurity.from_properties(
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO",
            }
        )


@pytest.mark.parametrize(
    ("protocol", "enabled", "lowest", "highest"),
    [
        ("TLSv1.2", "", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ("TLSv1.2", "TLSv1.3", ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        ("TLSv1.2", "TLSv1.3, TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ("TLS", "", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_protocols_are_limited(protocol, enabled, lowest, highest):
    found = context(protocol=protocol, enabled_protocols=enabled)
    assert (found.minimum_version, found.maximum_version) == (lowest, highest)


def test_old_protocols_and_weak_suites_are_refused_by_name():
    assert refusal(protocol="TLSv1.1").startswith("zookeeper.ssl.protocol=TLSv1.1: Invalid value, expected TLSv1.2")
    assert refusal(enabled_protocols="TLSv1.3,SSLv3").startswith("zookeeper.ssl.enabled.protocols=TLSv1.3,SSLv3: ")
    said = refusal(cipher_suites="TLS_RSA_WITH_RC4_128_SHA")
    assert said.startswith("zookeeper.ssl.cipher.suites=TLS_RSA_WITH_RC4_128_SHA: Invalid value, no suite of this name")


def test_suites_are_limited_by_their_standard_names():
    found = context(cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    names = {one["name"] for one in found.get_ciphers() if one["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-RSA-AES256-GCM-SHA384"}
    assert found.maximum_version == ssl.TLSVersion.TLSv1_2
    assert "can't choose among the suites of TLS 1.3" in refusal(cipher_suites="TLS_AES_128_GCM_SHA256")
    of_tls_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    assert context(cipher_suites=of_tls_1_3, enabled_protocols="TLSv1.3").minimum_version == ssl.TLSVersion.TLSv1_3


def test_what_cant_be_read_names_property_and_file_and_no_password(folder, tmp_path):
    said = refusal(keystore_location=f"{folder}/client.p12", keystore_password="hush")
    assert said.startswith(f"zookeeper.ssl.keystore.location={folder}/client.p12: Invalid value, it is no PKCS12")
    assert "zookeeper.ssl.keystore.password is not its password" in said
    assert "hush" not in said
    assert "No such file" in refusal(truststore_location="/no/file.pem")
    assert "it is no PKCS12" in refusal(keystore_location=f"{folder}/ca.pem", keystore_type="JKS")
    assert "it is no PKCS12" in refusal(truststore_location=f"{folder}/client.jaas")
    assert "expected one private key in PEM, found 0" in refusal(keystore_location=f"{folder}/ca.pem")
    assert "no private key with" in refusal(keystore_location=f"{folder}/ca.p12", keystore_password=PASSWORD)
    (tmp_path / "empty.pem").write_bytes(b"")
    assert "it has no certificate in PEM" in refusal(truststore_location=f"{tmp_path}/empty.pem")


def test_the_key_of_an_archive_leaves_no_file(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert context(keystore_location=f"{folder}/client.p12", keystore_password=PASSWORD) is not None
    assert os.listdir(tmp_path) == []
