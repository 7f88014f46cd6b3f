"""The APIs of users, ACLs and delegation tokens: each is driven by two clients at least, which log in by SCRAM."""

import re

import pytest
from confluent_kafka import admin as confluent
from kafka import KafkaAdminClient
from kafka import admin as kafka_python

from millrace_support.sasl_brokers import MECHANISMS, PASSWORD, USER, client_jaas, sasl_broker, sasl_properties

MECHANISM = "SCRAM-SHA-512"
TOKENS_TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
TIMEOUT_S = 120
PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{USER}",
    "delegation.token.secret.key": "a-secret-of-all-brokers",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    properties = {**sasl_properties(*MECHANISMS), **PROPERTIES}
    with sasl_broker(tmp_path_factory.mktemp("secured"), properties) as process:
        yield process


@pytest.fixture
def drive(node_client, broker):
    """Returns a function that runs one task of `secured.mjs`."""
    run = node_client("platformatic", "secured.mjs")
    return lambda task: run(broker, f"platformatic-{task}", task)


@pytest.fixture
def librdkafka(broker):
    return confluent.AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )


@pytest.fixture
def python_admin(broker):
    client = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISM,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    yield client
    client.close()


def test_confluent_kafka_acls(librdkafka):
    pattern = (confluent.ResourceType.TOPIC, "orders", confluent.ResourcePatternType.LITERAL, "User:bob", "*")
    rule = (confluent.AclOperation.WRITE, confluent.AclPermissionType.ALLOW)
    binding, like = confluent.AclBinding(*pattern, *rule), confluent.AclBindingFilter(*pattern, *rule)
    librdkafka.create_acls([binding])[binding].result(TIMEOUT_S)
    assert librdkafka.describe_acls(like).result(TIMEOUT_S) == [binding]
    assert librdkafka.delete_acls([like])[like].result(TIMEOUT_S) == [binding]
    assert librdkafka.describe_acls(like).result(TIMEOUT_S) == []


def test_kafka_python_acls(python_admin):
    rule = kafka_python.ACL(
        principal="User:carol",
        host="*",
        operation=kafka_python.ACLOperation.READ,
        permission_type=kafka_python.ACLPermissionType.DENY,
        resource_pattern=kafka_python.ResourcePattern(kafka_python.ResourceType.GROUP, "carols"),
    )
    assert python_admin.create_acls([rule])["succeeded"] == [rule]
    like = kafka_python.ACLFilter(
        "User:carol",
        "*",
        rule.operation,
        rule.permission_type,
        kafka_python.ResourcePatternFilter(
            kafka_python.ResourceType.GROUP, "carols", kafka_python.ACLResourcePatternType.LITERAL
        ),
    )
    found, _ = python_admin.describe_acls(like)
    assert found == [rule]
    [(_, [deleted], _)] = python_admin.delete_acls([like])
    assert deleted == rule
    assert python_admin.describe_acls(like)[0] == []


def test_platformatic_acls(drive):
    assert drive("acls") == {"found": 1, "deleted": 1, "left": []}


def test_confluent_kafka_users(librdkafka):
    scram = confluent.ScramMechanism.SCRAM_SHA_512
    update = confluent.UserScramCredentialUpsertion("dora", confluent.ScramCredentialInfo(scram, 4096), b"secret")
    librdkafka.alter_user_scram_credentials([update])["dora"].result(TIMEOUT_S)
    [found] = librdkafka.describe_user_scram_credentials(["dora"])["dora"].result(TIMEOUT_S).scram_credential_infos
    assert (found.mechanism, found.iterations) == (scram, 4096)
    deletion = confluent.UserScramCredentialDeletion("dora", scram)
    librdkafka.alter_user_scram_credentials([deletion])["dora"].result(TIMEOUT_S)
    with pytest.raises(Exception, match="dora"):
        librdkafka.describe_user_scram_credentials(["dora"])["dora"].result(TIMEOUT_S)


def test_platformatic_users(drive):
    assert drive("users") == [{"mechanism": 1, "iterations": 4096}]


def test_platformatic_tokens(drive):
    assert drive("tokens") == {"owner": USER, "renewers": ["bob"], "left": []}


@pytest.mark.peers
def test_java_tokens(broker, kafka_jars, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n"
        f"sasl.jaas.config={client_jaas(MECHANISM)}\n".replace("\\", "\\\\")
    )

    def tool(*arguments):
        command = ("--bootstrap-server", broker.bootstrap, "--command-config", str(config))
        return kafka_jars.run(TOKENS_TOOL, *command, *arguments)

    printed = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    hmac = re.search(r"\S{88}", printed)[0]
    describe = (
        "--describe",
        "--owner-principal",
        f"User:{USER}",
    )  # the tool shows none of them unless it is given an owner
    assert hmac in tool(*describe)
    tool("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert hmac not in tool(*describe)
