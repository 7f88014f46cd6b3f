"""A schema registry that asks who is there: passwords, tokens, OAuth, certificates, from a file or the environment."""

import pytest

from millrace.security.tls import server_context
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.payload.registry import HttpRegistry, read_access
from millrace_support.certificates import Authority
from millrace_support.schema_registry import TOKEN, SchemaRegistryServer


@pytest.fixture
def server():
    with SchemaRegistryServer() as started:
        started.register("events-value", '"string"')
        yield started


def test_a_token_of_the_environment(server, monkeypatch):
    server.credentials = "Bearer fixed-token"
    monkeypatch.setenv("SCHEMA_REGISTRY_BEARER_AUTH_TOKEN", "fixed-token")
    monkeypatch.setenv("SCHEMA_REGISTRY_BEARER_AUTH_LOGICAL_CLUSTER", "lsrc-1")
    monkeypatch.setenv("SCHEMA_REGISTRY_BEARER_AUTH_IDENTITY_POOL_ID", "pool-1")
    assert HttpRegistry(server.url).schema(1).text == '"string"'
    named = (server.headers["target-sr-cluster"], server.headers["Confluent-Identity-Pool-Id"])
    assert named == ("lsrc-1", "pool-1")


def test_a_password_in_a_file_of_kafkas_names(server, monkeypatch, tmp_path):
    server.credentials = "Basic bWU6c2VjcmV0"
    path = tmp_path / "registry.properties"
    path.write_text("bootstrap.servers=x:1\nschema.registry.basic.auth.user.info=me:secret\n")
    monkeypatch.setenv("SCHEMA_REGISTRY_CLIENT_CONFIG", str(path))
    assert HttpRegistry(server.url).schema(1).text == '"string"'


def with_oauth(monkeypatch, url, secret):
    monkeypatch.setenv("SCHEMA_REGISTRY_BEARER_AUTH_ISSUER_ENDPOINT_URL", f"{url}/token")
    monkeypatch.setenv("SCHEMA_REGISTRY_BEARER_AUTH_CLIENT_ID", "reader")
    monkeypatch.setenv("SCHEMA_REGISTRY_BEARER_AUTH_CLIENT_SECRET", secret)


def test_a_token_of_an_oauth_endpoint(server, monkeypatch):
    server.credentials = f"Bearer {TOKEN}"
    with_oauth(monkeypatch, server.url, "of-reader")
    assert HttpRegistry(server.url).schema(1).text == '"string"'


def test_a_refused_oauth_client_is_said_without_its_secret(server, monkeypatch):
    with_oauth(monkeypatch, server.url, "very-secret")
    with pytest.raises(SchemaError, match=r"the schema registry can't be asked: .*/token answered 401") as caught:
        HttpRegistry(server.url).schema(1)
    assert "very-secret" not in str(caught.value)


def test_certificates_of_both_sides(monkeypatch, tmp_path):
    authority = Authority()
    files = authority.issue().write(tmp_path, "server")
    client = authority.issue("CN=reader", names=()).write(tmp_path, "client")
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.key_store_pem)}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.trust_store_pem)}
    with SchemaRegistryServer(server_context({**stores, **trust, "ssl.client.auth": "required"})) as server:
        server.register("events-value", '"string"')
        monkeypatch.setattr("millrace_pipelines.warehouse.payload.registry.ATTEMPTS", 1)
        with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
            HttpRegistry(server.url).schema(1)
        monkeypatch.setenv("SCHEMA_REGISTRY_SSL_CA_LOCATION", str(files.trust_store_pem))
        with pytest.raises(RegistryError):
            HttpRegistry(server.url).schema(1)
        monkeypatch.setenv("SCHEMA_REGISTRY_SSL_KEYSTORE_TYPE", "PEM")
        monkeypatch.setenv("SCHEMA_REGISTRY_SSL_KEYSTORE_LOCATION", str(client.key_store_pem))
        assert HttpRegistry(server.url).schema(1).text == '"string"'


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"BASIC_AUTH_USER_INFO": "a:b", "BEARER_AUTH_TOKEN": "very-secret"},
            "basic.auth.user.info and bearer.auth.token are given; one of them is to go",
        ),
        (
            {"BEARER_AUTH_ISSUER_ENDPOINT_URL": "https://x", "BEARER_AUTH_CLIENT_ID": "a"},
            "bearer.auth.issuer.endpoint.url needs bearer.auth.client.secret",
        ),
        ({"SSL_KEYSTORE_LOCATION": "/nowhere"}, "ssl.keystore.location: /nowhere: No such file or directory"),
        ({"CLIENT_CONFIG": "/nowhere"}, "/nowhere: No such file or directory"),
    ],
)
def test_what_can_t_be_used_is_named(environment, message):
    with pytest.raises(SchemaError) as caught:
        read_access({f"SCHEMA_REGISTRY_{name}": value for name, value in environment.items()})
    assert str(caught.value) == f"the schema registry can't be asked: {message}"
