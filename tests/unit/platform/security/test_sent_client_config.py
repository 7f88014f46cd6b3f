"""What a driver sends of a client's security: all of it, for `send:` alone, and shown nowhere."""

import pickle

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.client_config import SecuritySource
from millrace.security.protocols import SecurityProtocol
from millrace_support.certificates import PASSWORD, Authority

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="very-secret";'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Authority().issue().write(tmp_path_factory.mktemp("stores"), "client")


def stores(kind, key_store, trust_store):
    of_each = {"ssl.keystore": key_store, "ssl.truststore": trust_store}
    located = {f"{name}.location": str(path) for name, path in of_each.items()}
    kinds = {f"{name}.type": kind for name in of_each}
    passwords = {f"{name}.password": PASSWORD for name in of_each} if kind == "PKCS12" else {}
    return {"security.protocol": "SSL", **located, **kinds, **passwords}


WAYS = {
    "a password": lambda files: {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN,
    },
    "stores in PEM": lambda files: stores("PEM", files.key_store_pem, files.trust_store_pem),
    "stores with passwords": lambda files: stores("PKCS12", files.key_store_p12, files.trust_store_p12),
    "names of librdkafka": lambda files: {
        "security.protocol": "sasl_ssl", "ssl.ca.location": str(files.trust_store_pem), "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice", "sasl.password": "very-secret",
    },
}  # fmt: skip


@pytest.fixture(params=WAYS)
def properties(request, files, tmp_path):
    """A file of client properties, which the test may remove."""
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in WAYS[request.param](files).items()))
    return path


def test_what_is_sent_is_whole_without_a_file_and_is_not_shown(properties):
    source = SecuritySource(f"send:{properties}")
    here = source.read()
    task = pickle.loads(pickle.dumps(source))
    properties.unlink()
    there = task.read()
    assert (there.protocol, there.mechanism) == (here.protocol, here.mechanism)
    assert (there.context is None) == (here.context is None)
    if here.context is not None:
        assert there.context.get_ca_certs() == here.context.get_ca_certs() != []
    assert not any(name.endswith(".location") for name in task.sent)
    for shown in (repr(source), repr(task), str(task)):
        assert "very-secret" not in shown
        assert "PRIVATE KEY" not in shown
        assert str(properties) in shown


def test_a_task_that_got_it_may_pass_it_on(properties):
    first = pickle.loads(pickle.dumps(SecuritySource(f"send:{properties}")))
    properties.unlink()
    assert pickle.loads(pickle.dumps(first)).sent == first.sent


def test_nothing_is_sent_unless_asked_for(properties):
    pickled = pickle.dumps(SecuritySource(str(properties)))
    assert b"very-secret" not in pickled
    properties.unlink()
    with pytest.raises(InvalidConfigError, match=str(properties)):
        pickle.loads(pickled).read()


@pytest.mark.parametrize("place", ["the variable that names the file", "a variable with its text", "variables"])
def test_what_the_driver_s_environment_says_is_sent_too(place, tmp_path, monkeypatch):
    text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN}\n"
    path = tmp_path / "client.properties"
    path.write_text(text if place == "the variable that names the file" else "")
    monkeypatch.setenv("TEXT", text)
    monkeypatch.setenv("MILLRACE_CLIENT_CONFIG", f"send:{path}")
    if place == "variables":
        for line in text.splitlines():
            name, _, value = line.partition("=")
            monkeypatch.setenv("MILLRACE_" + name.upper().replace(".", "_"), value)
    pickled = pickle.dumps(SecuritySource("send:env:TEXT" if place == "a variable with its text" else None))
    for name in ("TEXT", "MILLRACE_CLIENT_CONFIG", *(f"MILLRACE_SASL_{one}" for one in ("MECHANISM", "JAAS_CONFIG"))):
        monkeypatch.delenv(name, raising=False)
    assert pickle.loads(pickled).read().protocol is SecurityProtocol.SASL_PLAINTEXT


def test_a_file_that_the_driver_can_t_read_is_named_there(tmp_path):
    with pytest.raises(InvalidConfigError, match=f"{tmp_path}/none"):
        pickle.dumps(SecuritySource(f"send:{tmp_path}/none"))
