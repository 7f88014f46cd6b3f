"""Two brokers that log in to each other by OAUTHBEARER, with an authorizer: they replicate on as tokens are renewed.

The token of the second one is refused at first, as the token server does not know its secret yet.
"""

from collections import Counter
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_clusters import QUICK, BrokerCluster
from millrace_support.certificates import Authority
from millrace_support.sasl_brokers import renewed_authentications, tokens_between_brokers
from millrace_support.token_server import TokenServer
from millrace_support.waiting import awaited

NAMES = {1: "first", 2: "second"}
SECRET = "between us"
LIFE_S = 6
TOKENS, RENEWALS = 2, 2
TIMEOUT_S = 60


@pytest.fixture
def tokens():
    with TokenServer({NAMES[1]: SECRET}, LIFE_S) as server:
        yield server


@pytest.fixture
def certificates(tmp_path):
    return Authority().issue().write(tmp_path)


def properties(name, tokens, certificates):
    """The properties of a broker that is `name`; alice, who logs in by PLAIN, may do everything, too."""
    return {
        "listeners": f"SASL_SSL://127.0.0.1:{free_port('127.0.0.1')}",
        "security.inter.broker.protocol": "SASL_SSL",
        **tokens_between_brokers("SASL_SSL", tokens, name, SECRET),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": ";".join(f"User:{one}" for one in (*NAMES.values(), "alice")),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.key_store_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trust_store_pem),
        "min.insync.replicas": "2",
        **QUICK,
        "zookeeper.session.timeout.ms": "60000",  # no broker ends before the test does
    }


@pytest.fixture
def cluster(zookeeper, tmp_path, tokens, certificates):
    place, brokers = f"{zookeeper.address}/{uuid4().hex}", {}
    for one, name in NAMES.items():
        own = properties(name, tokens, certificates)
        brokers[one] = BrokerProcess(tmp_path / name, zookeeper=place, broker_id=one, properties=own)
    yield BrokerCluster(brokers)
    for broker in brokers.values():
        broker.kill()
        broker.close()


def all_in_sync(admin):
    partitions = admin.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions.values()
    return all(len(one.isrs) == len(NAMES) for one in partitions) or None


def test_brokers_replicate_by_tokens_that_are_renewed(cluster, tokens, certificates):
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "hush",
        "ssl.ca.location": str(certificates.trust_store_pem),
    }
    admin = AdminClient(settings)
    awaited(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == len(NAMES) or None, "both brokers")
    admin.create_topics([NewTopic("t", 2, replication_factor=2)])["t"].result(TIMEOUT_S)
    second = cluster.brokers[2]
    refused = f"{tokens.token_url} answered 401 to a request for a token"
    awaited(lambda: refused in second.read_log() or None, "the second broker says why it can't follow")
    assert SECRET not in second.read_log()

    tokens.secrets[NAMES[2]] = SECRET
    awaited(lambda: all_in_sync(admin), "the second broker follows")
    asked_before = Counter(one["scope"] for one in tokens.requests)
    producer = confluent_kafka.Producer({**settings, "acks": "all"})
    errors = []

    def replicated_across_renewals():
        for partition in range(2):
            producer.produce("t", b"on and on", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        asked = Counter(one["scope"] for one in tokens.requests) - asked_before
        has_asked = all(asked[name] >= TOKENS for name in NAMES.values())
        return (has_asked and all(renewed_authentications(one) >= RENEWALS for one in cluster.brokers.values())) or None

    awaited(replicated_across_renewals, "tokens and sessions are renewed")
    assert set(errors) == {None}
    assert all(cluster.equal_logs("t", partition) for partition in range(2))
