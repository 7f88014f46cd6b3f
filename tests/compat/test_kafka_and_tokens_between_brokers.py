"""Brokers of Apache Kafka 3.9 and of Millrace log in to each other by OAUTHBEARER, and replicate across renewals."""

from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.security.client_security import ClientSecurity, jaas_of
from millrace_support.mixed_clusters import Securing, Software, mixed_cluster
from millrace_support.sasl_brokers import renewed_authentications, tokens_between_brokers
from millrace_support.token_server import TokenServer
from millrace_support.waiting import awaited

KAFKA, MILLRACE = Software
LISTENER, SECRET, LIFE_S = "SASL_PLAINTEXT", "between us", 8
ALICE = {"security.protocol": LISTENER, "sasl.mechanism": "PLAIN"}
TOKENS, RENEWALS = 4, 2
TIMEOUT_S = 120


@pytest.fixture
def tokens():
    with TokenServer({"broker": SECRET}, LIFE_S) as server:
        yield server


@pytest.fixture
def cluster(kafka, zookeeper, tmp_path, tokens):
    properties = {
        **tokens_between_brokers(LISTENER, tokens, "broker", SECRET),
        "security.inter.broker.protocol": LISTENER,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:alice",
        "min.insync.replicas": "2",
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.token_url},{tokens.keys_url}"
    client = ClientSecurity.from_properties({**ALICE, "sasl.jaas.config": jaas_of("PLAIN", "alice", "hush")})
    place, start = f"{zookeeper.address}/{uuid4().hex}", {1: KAFKA, 2: MILLRACE}
    securing = Securing(properties, (allowed,), client)
    with mixed_cluster(kafka, tmp_path, place, start, {}, securing=securing) as brokers:
        yield brokers


def test_both_renew_their_tokens_and_replicate_on(cluster, tokens):
    settings = {
        "bootstrap.servers": cluster.bootstrap, **ALICE, "sasl.username": "alice", "sasl.password": "hush"
    }  # fmt: skip
    led_by_both = [[1, 2], [2, 1]]
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", 2, replica_assignment=led_by_both)])["t"].result(TIMEOUT_S)
    cluster.all_in_sync()
    producer = confluent_kafka.Producer({**settings, "acks": "all"})
    errors = []

    def replicated_across_renewals():
        for partition in range(2):
            producer.produce("t", b"on and on", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        is_renewed = len(tokens.requests) >= TOKENS
        return (is_renewed and renewed_authentications(cluster.brokers[2].process) >= RENEWALS) or None

    awaited(replicated_across_renewals, "tokens and sessions are renewed")
    assert set(errors) == {None}
    assert all(cluster.equal_logs("t", partition) for partition in range(2))
