"""Stock clients authenticate by every mechanism that they know, and what fails says no more than it must."""

import asyncio
import uuid

import aiokafka
import confluent_kafka as confluent
import kafka
import kafka.errors
import pytest
from confluent_kafka import admin as confluent_admin

from millrace.client import Cluster
from millrace.errors import MillraceError
from millrace.testing.broker import BrokerProcess
from millrace_support.sasl_brokers import (
    MECHANISMS,
    PASSWORD,
    SCRAM,
    USER,
    renewed_authentications,
    sasl_broker,
    sasl_properties,
)
from millrace_support.token_server import AUDIENCE, ISSUER, TokenServer

VALUES = [b"%d" % number for number in range(20)]
POLLS = 1200
WAIT_S = 120
FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with sasl_broker(tmp_path_factory.mktemp("sasl")) as process:
        yield process


def confluent_settings(bootstrap, mechanism, user=USER, password=PASSWORD):
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def with_confluent(bootstrap, mechanism, topic):
    return confluent_round(confluent_settings(bootstrap, mechanism), topic)


def confluent_round(settings, topic):
    """Produces and consumes values."""
    producer = confluent.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = confluent.Consumer({**settings, "group.id": "none"})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(len(VALUES), WAIT_S)]
    consumer.close()
    return found


def kafka_python_settings(bootstrap, mechanism, password=PASSWORD):
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


def with_kafka_python(bootstrap, mechanism, topic):
    settings = kafka_python_settings(bootstrap, mechanism)
    producer = kafka.KafkaProducer(**settings)
    for future in [producer.send(topic, value, partition=0) for value in VALUES]:
        future.get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, auto_offset_reset="earliest", consumer_timeout_ms=1000 * WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def with_aiokafka(bootstrap, mechanism, topic):
    async def produce_and_consume():
        settings = kafka_python_settings(bootstrap, mechanism)
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        consumer = aiokafka.AIOKafkaConsumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        async with consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(asyncio.wait_for(produce_and_consume(), WAIT_S))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [with_confluent, with_kafka_python, with_aiokafka])
def test_a_client_authenticates(broker, client, mechanism):
    assert client(broker.bootstrap, mechanism, f"{client.__name__}-{mechanism}") == VALUES


def failure_of(settings):
    """Returns the first error of authentication that a client reports."""
    said = []
    client = confluent.Producer({**settings, "error_cb": said.append})
    for _ in range(POLLS):
        client.poll(0.1)
        for error in said:
            if error.code() == confluent.KafkaError._AUTHENTICATION:
                return error.str()
    pytest.fail(f"no failure of authentication is told, but {said}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_are_refused_in_the_same_words(broker, mechanism, user, password):
    said = failure_of(confluent_settings(broker.bootstrap, mechanism, user, password))
    assert f"SASL authentication error: {FAILED} {mechanism} " in said


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(broker):
    settings = {**confluent_settings(broker.bootstrap, "OAUTHBEARER"), "oauth_cb": lambda _: ("a.b.c", 1e10)}
    assert "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" in failure_of(settings)


def test_nobody_is_served_without_authentication(broker):
    with pytest.raises(MillraceError), Cluster(broker.bootstrap, timeout_s=2.0) as cluster:
        cluster.metadata([])


def test_kafka_python_is_told_of_a_wrong_password(broker):
    settings = kafka_python_settings(broker.bootstrap, "SCRAM-SHA-512", "wrong")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**settings, max_block_ms=5_000).send("t", b"x").get(5)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_user_that_an_administrator_makes_logs_in_and_one_that_is_deleted_does_not(broker, mechanism):
    scram = confluent_admin.ScramMechanism[mechanism.replace("-", "_")]
    user = f"user of {mechanism}, made = {uuid.uuid4().hex}"
    client = confluent_admin.AdminClient(confluent_settings(broker.bootstrap, "PLAIN"))
    info = confluent_admin.ScramCredentialInfo(scram, 8192)
    made = client.alter_user_scram_credentials([confluent_admin.UserScramCredentialUpsertion(user, info, b"secret")])
    made[user].result(WAIT_S)
    [described] = client.describe_user_scram_credentials([user])[user].result(WAIT_S).scram_credential_infos
    assert (described.mechanism, described.iterations) == (scram, 8192)
    settings = confluent_settings(broker.bootstrap, mechanism, user, "secret")
    assert confluent_round(settings, f"made-{mechanism}") == VALUES
    deletion = confluent_admin.UserScramCredentialDeletion(user, scram)
    client.alter_user_scram_credentials([deletion])[user].result(WAIT_S)
    assert FAILED in failure_of(settings)


@pytest.fixture(scope="module")
def tokens():
    with TokenServer({"app": "secret"}) as server:
        yield server


@pytest.fixture(scope="module")
def token_broker(tmp_path_factory, tokens):
    properties = sasl_properties(
        "OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=tokens.keys_url,
        sasl_oauthbearer_expected_audience=AUDIENCE,
        sasl_oauthbearer_expected_issuer=ISSUER,
    )
    with BrokerProcess(tmp_path_factory.mktemp("tokens"), properties=properties) as process:
        yield process


def bearer_settings(bootstrap, **others):
    settings = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return {**settings, "log_level": 0, **{name.replace("_", "."): value for name, value in others.items()}}


def test_a_token_of_the_application_authenticates(token_broker, tokens):
    settings = bearer_settings(token_broker.bootstrap) | {"oauth_cb": lambda _: (tokens.token(), 1e10)}
    assert confluent_round(settings, "bearer") == VALUES


def test_a_client_gets_its_token_by_openid_connect(token_broker, tokens):
    settings = bearer_settings(
        token_broker.bootstrap,
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_client_id="app",
        sasl_oauthbearer_client_secret="secret",
        sasl_oauthbearer_token_endpoint_url=tokens.token_url,
    )
    assert confluent_round(settings, "oidc") == VALUES


@pytest.mark.parametrize("claims", [{"aud": "other"}, {"iss": "other"}, {"exp": 1}])
def test_a_token_for_somebody_else_is_refused(token_broker, tokens, claims):
    settings = bearer_settings(token_broker.bootstrap) | {"oauth_cb": lambda _: (tokens.token(**claims), 1e10)}
    assert "OAUTHBEARER" in failure_of(settings)


def test_sessions_are_renewed_under_load_and_nothing_is_lost(tmp_path):
    """A client authenticates again in the middle of what it sends; the broker closes no connection for it.

    librdkafka begins once nine tenths of a session have passed: the last one must be long enough for a busy machine.
    """
    properties = sasl_properties(*MECHANISMS, connections_max_reauth_ms="20000")
    with sasl_broker(tmp_path / "data", properties) as broker:
        failures, count = [], 0
        producer = confluent.Producer(
            {**confluent_settings(broker.bootstrap, "SCRAM-SHA-256"), "linger.ms": 0, "error_cb": failures.append}
        )

        def delivered(error, _message):
            if error is not None:
                failures.append(error)

        def send_some():
            nonlocal count
            for _ in range(100):
                producer.produce("load", b"%d" % count, partition=0, on_delivery=delivered)
                producer.poll(0.002)
                count += 1

        while not renewed_authentications(broker):
            send_some()
        send_some()
        assert producer.flush(WAIT_S) == 0
        assert failures == []
        consumer = confluent.Consumer({**confluent_settings(broker.bootstrap, "PLAIN"), "group.id": "none"})
        consumer.assign([confluent.TopicPartition("load", 0, 0)])
        found = [message.value() for message in consumer.consume(count, WAIT_S)]
        consumer.close()
    assert found == [b"%d" % number for number in range(count)]
