"""What Spark's own Kafka source is told of a secured cluster: all but the secrets, of which it learns the place."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import TopicSource
from millrace_pipelines.warehouse.load.jobs import PROVIDERS, kafka_security
from millrace_support.certificates import Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN} required username="alice" password="very-secret";'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Authority().issue("CN=alice", names=()).write(tmp_path_factory.mktemp("certificates"), "client")


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What Spark is told of a file's text, without the configuration providers; the file's place is FILE."""

    def told(text, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "client.properties"
        path.write_text(text)
        options = kafka_security(TopicSource("a:1", "t", security=SecuritySource(str(path))))
        assert "very-secret" not in str(options)
        rest = {name.removeprefix("kafka."): value for name, value in options.items()}
        assert rest.items() >= PROVIDERS.items()
        return {name: value.replace(str(path), "FILE") for name, value in rest.items() if name not in PROVIDERS}

    return told


def test_nothing_is_told_of_a_cluster_in_plain_text():
    assert kafka_security(TopicSource("a:1", "t")) == {}


def test_of_a_secret_its_place_in_the_file(told):
    assert told(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\nacks=all\n") == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "${file:FILE:sasl.jaas.config}",
    }


def test_of_a_secret_in_the_environment_its_variable(told):
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    found = told(text, MILLRACE_SASL_JAAS_CONFIG=JAAS)
    assert found["sasl.jaas.config"] == "${env:MILLRACE_SASL_JAAS_CONFIG}"


def test_librdkafkas_names_become_kafkas(told, files):
    found = told(
        "security.protocol=sasl_ssl\nsasl.mechanisms=PLAIN\nsasl.username=alice\nsasl.password=very-secret\n"
        f"ssl.ca.location={files.trust_store_pem}\nssl.certificate.location={files.certificate}\n"
        f"ssl.key.location={files.key}\nssl.endpoint.identification.algorithm=none\n"
    )
    folder = files.key.parent
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="alice" password="${{file:FILE:sasl.password}}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.trust_store_pem),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": f"${{directory:{folder}:{files.certificate.name}}}",
        "ssl.keystore.key": f"${{directory:{folder}:{files.key.name}}}",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_a_password_that_would_end_its_quotes_is_refused(told):
    text = 'security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=very"secret\n'
    with pytest.raises(InvalidConfigError, match=r"^sasl\.password: .* needs sasl\.jaas\.config instead$"):
        told(text)


def test_a_variable_with_a_whole_file_is_refused(monkeypatch):
    monkeypatch.setenv("CLIENT", "security.protocol=PLAINTEXT")
    with pytest.raises(InvalidConfigError, match=r"^env:CLIENT: the reader spark-kafka takes a file"):
        kafka_security(TopicSource("a:1", "t", security=SecuritySource("env:CLIENT")))
