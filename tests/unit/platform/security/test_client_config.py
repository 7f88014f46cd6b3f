"""What a client's file may say of security: each mistake has a sentence that names the place and the property."""

import pickle

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.client_config import read_client_security
from millrace.security.client_security import ClientSecurity, canonical
from millrace.security.protocols import SecurityProtocol
from millrace_support.certificates import PASSWORD, Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{PLAIN} required username="alice" password="very-secret";'
SASL = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n"

WRONG = {
    "security.protocol=TLS": ", line 1: security.protocol: TLS is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    "security.protocol=SSL\nssl.trustore.location=ca.pem": (
        ", line 2: ssl.trustore.location: there is no such property; did you mean ssl.truststore.location?"
    ),
    "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.conf=x": (
        ", line 3: sasl.jaas.conf: there is no such property; did you mean sasl.jaas.config?"
    ),
    "ssl.truststore.type=PEM": (
        ", line 1: ssl.truststore.type: it has no effect without security.protocol, for example SSL"
    ),
    "\n\nsasl.mechanism=PLAIN": (
        ", line 3: sasl.mechanism: it has no effect without security.protocol, for example SASL_SSL"
    ),
    "security.protocol=SASL_SSL": (
        ", line 1: sasl.mechanism: SASL_SSL needs it: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
    ),
    "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI": (
        ", line 2: sasl.mechanism: GSSAPI is not spoken here; "
        "there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
    ),
    "security.protocol=SASL_SSL\nsasl.kerberos.service.name=kafka": (
        ", line 2: sasl.kerberos.service.name: Kerberos is not spoken here; "
        "sasl.mechanism is one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
    ),
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN": (
        f", line 1: sasl.jaas.config: PLAIN needs it: {PLAIN} required …;"
    ),
    f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={JAAS}": (
        f", line 3: sasl.jaas.config: {PLAIN} does not log in by SCRAM-SHA-256; use {SCRAM}"
    ),
    f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS[:-1]}": (
        ", line 3: sasl.jaas.config: a semicolon is missing after the last option"
    ),
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice": (
        ", line 3: sasl.username: sasl.password is needed too"
    ),
    f"{SASL}sasl.username=alice\nsasl.password=very-secret": (
        ", line 4: sasl.username: sasl.jaas.config is given too; one of them is to go"
    ),
    "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.username=a\nsasl.password=very-secret": (
        ", line 3: sasl.username: OAUTHBEARER has no users with passwords; sasl.jaas.config names its login module"
    ),
    "security.protocol=SASL_SSL\nsasl.oauthbearer.client.credentials.client.secret=very-secret": (
        ", line 2: sasl.oauthbearer.client.credentials.client.secret: "
        "write clientId and clientSecret into the login module of sasl.jaas.config"
    ),
    "security.protocol=SSL\nssl.truststore.location=/nowhere/ca.pem": (
        ", line 2: ssl.truststore.location: /nowhere/ca.pem: No such file or directory"
    ),
    "security.protocol=SSL\nssl.keystore.location=/": ", line 2: ssl.keystore.location: /: Is a directory",
    "security.protocol=SSL\nssl.truststore.type=BCFKS": (
        ", line 2: ssl.truststore.type: BCFKS is none of PEM, PKCS12, JKS"
    ),
    "security.protocol=SSL\nssl.endpoint.identification.algorithm=ldaps": (
        ", line 2: ssl.endpoint.identification.algorithm: ldaps is not https, nor empty, which checks none"
    ),
    "security.protocol=SSL\nssl.keystore.key=very-secret": (
        ", line 2: ssl.keystore.key: ssl.keystore.certificate.chain is needed too"
    ),
    "security.protocol=SSL\nssl.engine.factory.class=com.example.Engine": (
        ", line 2: ssl.engine.factory.class: this names something of Java, which has no meaning here; leave it out"
    ),
    "security.protocol=SSL\nssl.truststore.location=CA\nssl.truststore.certificates=x": (
        ", line 3: ssl.truststore.certificates: ssl.truststore.location is given too; one of them is to go"
    ),
    "security.protocol=SSL\nssl.ca.location=CA\nssl.truststore.location=OTHER": (
        ", line 2: ssl.ca.location: ssl.truststore.location is given too, with another value"
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Authority().issue().write(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_a_wrong_file_has_a_sentence_with_place_and_property(tmp_path, files, text, message):
    path = tmp_path / "client.properties"
    path.write_text(text.replace("=CA", f"={files.trust_store_pem}").replace("=OTHER", f"={files.certificate}"))
    with pytest.raises(InvalidConfigError) as caught:
        read_client_security(str(path), environment={})
    assert str(caught.value) == f"{path}{message}"
    assert "very-secret" not in repr(caught.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InvalidConfigError, match=r"^/nowhere: No such file or directory$"):
        read_client_security("/nowhere", environment={})


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(InvalidConfigError, match=r"^env:CLIENT: there is no environment variable CLIENT$"):
        read_client_security("env:CLIENT", environment={})


def test_without_any_property_nothing_is_secured():
    assert read_client_security(None, environment={}) is ClientSecurity.PLAINTEXT


def test_environment_wins_over_the_file_and_options_over_both(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(SASL)
    in_file = read_client_security(None, environment={"MILLRACE_CLIENT_CONFIG": str(path)})
    assert (in_file.protocol, in_file.mechanism) == (SecurityProtocol.SASL_PLAINTEXT, "PLAIN")
    changed = {"MILLRACE_SASL_MECHANISM": "SCRAM-SHA-256", "MILLRACE_SASL_JAAS_CONFIG": JAAS.replace(PLAIN, SCRAM)}
    assert read_client_security(str(path), environment=changed).mechanism == "SCRAM-SHA-256"
    optional = {"sasl.mechanism": "SCRAM-SHA-512", "fetch.min.bytes": "1"}
    assert read_client_security(str(path), optional, changed).mechanism == "SCRAM-SHA-512"


def test_a_wrong_variable_is_named():
    with pytest.raises(InvalidConfigError, match=r"^the environment variable MILLRACE_SECURITY_PROTOCOL: security\.p"):
        read_client_security(None, environment={"MILLRACE_SECURITY_PROTOCOL": "TLS"})


def test_a_variable_may_hold_the_whole_file():
    assert read_client_security("env:CLIENT", environment={"CLIENT": SASL}).mechanism == "PLAIN"


def test_names_of_librdkafka_are_those_of_kafka(files):
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'a "quoted\\" one',
        "ssl.ca.location": str(files.trust_store_pem),
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
        "ssl.endpoint.identification.algorithm": "none",
        "linger.ms": "5",
    }
    assert canonical(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="alice" password="a \\"quoted\\\\\\" one";',
        "ssl.truststore.location": str(files.trust_store_pem),
        "ssl.truststore.type": "PEM",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": files.certificate.read_text(),
        "ssl.keystore.key": files.key.read_text(),
        "ssl.endpoint.identification.algorithm": "",
    }


def test_secrets_are_in_no_representation_and_never_pickled(files):
    security = ClientSecurity.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": JAAS,
            "ssl.keystore.location": str(files.key_store_p12),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
        }
    )
    assert "sasl.jaas.config=[hidden]" in repr(security)
    for shown in (repr(security), str(security), f"{security}"):
        assert "very-secret" not in shown
        assert PASSWORD not in shown
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(security)


def test_a_security_does_not_change():
    with pytest.raises(AttributeError):
        ClientSecurity.PLAINTEXT.protocol = SecurityProtocol.SSL
