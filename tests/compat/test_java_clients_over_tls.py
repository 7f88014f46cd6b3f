"""Apache Kafka's own producer and consumer over TLS and mutual TLS, with stores in PKCS12 and PEM."""

import pytest

from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_support.certificates import PASSWORD, Authority
from millrace_support.kafka_tools import PATIENT_PRODUCER

pytestmark = pytest.mark.peers

AUTHORITY = Authority()
LINES = [f"line {number}" for number in range(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("java-tls")


@pytest.fixture(scope="module")
def addresses(folder):
    """The addresses of a broker with three listeners, by their names."""
    files = AUTHORITY.issue(is_rsa=True).write(folder)
    at = {name: f"127.0.0.1:{free_port()}" for name in ("PLAINTEXT", "SSL", "MUTUAL")}
    properties = {
        "listeners": ",".join(f"{name}://{address}" for name, address in at.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
        "ssl.keystore.location": str(files.key_store_p12),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(files.trust_store_p12),
        "ssl.truststore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L",
    }
    with BrokerProcess(folder / "data", properties=properties):
        yield at


def pkcs12(files):
    return {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": files.trust_store_p12,
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": files.key_store_p12,
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }


def pem(files):
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": files.trust_store_pem}


@pytest.mark.parametrize(("listener", "stores"), [("SSL", pem), ("MUTUAL", pkcs12)])
def test_the_console_producer_and_consumer_of_3_9(folder, addresses, listener, stores):
    files = AUTHORITY.issue("CN=Alice,OU=Data,O=Example", names=(), is_rsa=True).write(folder, f"client-{listener}")
    config = folder / f"{listener}.properties"
    properties = {"security.protocol": "SSL", **stores(files)}
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    kafka, topic = find_kafka("3.9"), f"java-{listener}"
    kafka.run(
        "kafka.tools.ConsoleProducer", "--bootstrap-server", addresses[listener], "--topic", topic,
        "--producer.config", str(config), *PATIENT_PRODUCER,
        stdin="".join(f"{line}\n" for line in LINES).encode(),
    )  # fmt: skip
    with Cluster(addresses["PLAINTEXT"]) as cluster:
        assert SimpleConsumer(cluster).latest(topic, 0) == len(LINES)
    output = kafka.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", addresses[listener],
        "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(LINES)),
        "--timeout-ms", "60000", "--consumer.config", str(config),
    )  # fmt: skip
    assert [line for line in output.splitlines() if line.startswith("line ")] == LINES
