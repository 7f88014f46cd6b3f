"""The demo at other addresses: what its definitions say, and how its producer is secured."""

import pytest
import yaml

from millrace_ops.demo.demo import HERE, Elsewhere, librdkafka_security

DECLARED = "type: c\n\nattributes:\n  tables: [{topic: flights}]\n"


def test_settings_of_spark_are_declared():
    text = Elsewhere(spark={"spark.executor.memory": "1g", "spark.pyspark.python": "./m/bin/python"}).declared(DECLARED)
    attributes = yaml.safe_load(text)["attributes"]
    assert attributes.pop("spark") == {"spark.executor.memory": "1g", "spark.pyspark.python": "./m/bin/python"}
    assert attributes == yaml.safe_load(DECLARED)["attributes"]
    assert HERE.declared(DECLARED) == DECLARED


SECURITY = {
    "security.protocol=PLAINTEXT": {"security.protocol": "PLAINTEXT"},
    "security.protocol=SSL\nssl.truststore.location=/ca.pem": {
        "security.protocol": "SSL", "ssl.ca.location": "/ca.pem",
    },
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";': {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b",
    },
}  # fmt: skip


@pytest.mark.parametrize(("text", "named"), SECURITY.items())
def test_the_producer_is_secured_as_the_file_says(tmp_path, text, named):
    (tmp_path / "client.properties").write_text(text)
    assert librdkafka_security(str(tmp_path / "client.properties")) == named
