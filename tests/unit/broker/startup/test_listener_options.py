"""What the broker makes of the listeners that its file or arguments name, of their certificates and their logins."""

import pytest

from millrace.errors import InvalidConfigError
from millrace_support.certificates import PASSWORD, Authority


@pytest.mark.parametrize(
    ("lines", "host", "port", "advertised"),
    [
        ("", "127.0.0.1", 9092, None),
        ("listeners=PLAINTEXT://:9094\nadvertised.listeners=PLAINTEXT://kafka.example.com:9", "0.0.0.0", 9094,
         "kafka.example.com:9"),
        ("listeners=PLAINTEXT://[::1]:9092", "::1", 9092, None),
        ("listeners=plaintext://[::]:1\nadvertised.listeners=PLAINTEXT://[2001:db8::1]:2", "::", 1, "[2001:db8::1]:2"),
        ("listeners=INTERNAL://h:1\nlistener.security.protocol.map=INTERNAL:PLAINTEXT", "h", 1, None),
    ],
)  # fmt: skip
def test_listeners(options, lines, host, port, advertised):
    found = options(lines, "--standalone", "--data", "d")
    [listener] = found.listeners
    assert (found.listen.host, found.listen.port) == (host, port)
    assert (listener.advertised and str(listener.advertised)) == advertised


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://HOST:PORT"),
        ("listeners=PLAINTEXT://0.0.0.0:9092", "the broker listens on every address"),
        ("listeners=PLAINTEXT://[::]:9092", "the broker listens on every address"),
        ("listeners=PLAINTEXT://a:1,plaintext://b:2", "two listeners have the name PLAINTEXT"),
        (
            "listener.security.protocol.map=A:PLAINTEXT\nlisteners=PLAINTEXT://a:1,A://b:1",
            "two listeners have the port 1",
        ),
        ("listener.security.protocol.map=A:TLS", "TLS is no security protocol"),
        ("listener.security.protocol.map=A", "expected NAME:PROTOCOL"),
        ("advertised.listeners=SSL://host:9093", "listeners has no listener SSL"),
        ("inter.broker.listener.name=SSL", "no listener that clients are told has this name"),
        ("security.inter.broker.protocol=SSL", "no listener that clients are told has this protocol"),
        ("security.inter.broker.protocol=PLAINTEXT\ninter.broker.listener.name=PLAINTEXT", "is given, too"),
        ("listeners=EXTERNAL://a:1", "no protocol for listener EXTERNAL"),
        ("listeners=a:1", "expected PLAINTEXT://HOST:PORT"),
        ("listeners=PLAINTEXT://a", "expected PLAINTEXT://HOST:PORT"),
        ("listeners=PLAINTEXT://a:70000", "expected PLAINTEXT://HOST:PORT"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "no client can connect to it"),
        ("advertised.listeners=PLAINTEXT://a:0", "no client can connect to it"),
        ("listener.security.protocol.map=A:PLAINTEXT\nadvertised.listeners=A://a:1", "listeners has no listener A"),
    ],
)
def test_listeners_that_stop_the_start(refused, lines, said):
    sentence = refused(lines)
    assert sentence.startswith(
        f"server.properties:{lines.count(chr(10)) + 1}: {lines.splitlines()[-1]}: Invalid value, "
    )
    assert said in sentence


TWO = "listeners=INTERNAL://10.0.0.1:1,OUTER://:2\nlistener.security.protocol.map=INTERNAL:PLAINTEXT,OUTER:PLAINTEXT\n"


def test_several_listeners_and_what_clients_are_told_of_each(options):
    lines = f"{TWO}advertised.listeners=OUTER://kafka.example.com:9,INTERNAL://10.0.0.1:1"
    found = options(lines, "--standalone", "--data", "d")
    assert [(one.name, str(one.address), str(one.advertised)) for one in found.listeners] == [
        ("INTERNAL", "10.0.0.1:1", "10.0.0.1:1"),
        ("OUTER", "0.0.0.0:2", "kafka.example.com:9"),
    ]
    assert found.properties["listeners"] == "INTERNAL://10.0.0.1:1,OUTER://0.0.0.0:2"


def test_a_listener_that_is_not_advertised_is_told_to_nobody(options):
    found = options(f"{TWO}advertised.listeners=INTERNAL://a:1", "--standalone", "--data", "d")
    assert [(one.name, one.is_told) for one in found.listeners] == [("INTERNAL", True), ("OUTER", False)]


def test_one_port_serves_both_kinds_of_addresses(options):
    lines = "listeners=A://127.0.0.1:9092,B://[::1]:9092\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    assert len(options(lines, "--standalone", "--data", "d").listeners) == 2


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("", "PLAINTEXT"),
        (f"{TWO}advertised.listeners=OUTER://a:2", "OUTER"),
        (f"{TWO}advertised.listeners=INTERNAL://a:1,OUTER://a:2\ninter.broker.listener.name=outer", "OUTER"),
    ],
)
def test_the_listener_of_brokers(options, lines, name):
    assert options(lines, "--zookeeper", "z:1", "--data", "d").inter_broker_listener == name


def test_a_property_of_a_listener_that_there_is_not_is_named_without_its_value(refused):
    assert refused("listener.name.outer.ssl.keystore.location=/k") == (
        "server.properties:1: listener.name.outer.ssl.keystore.location: Invalid value, listeners has no listener OUTER"
    )


@pytest.mark.parametrize(
    ("lines", "coordination", "spared"),
    [
        (TWO, ("--zookeeper", "z:1"), "INTERNAL"),
        ("", ("--zookeeper", "z:1"), None),
        (TWO, ("--standalone",), None),
    ],
)
def test_limits_of_connections_spare_the_listener_that_brokers_have_for_themselves(
    options, lines, coordination, spared
):
    told = "advertised.listeners=INTERNAL://a:1" if lines else ""
    assert options(f"{lines}{told}", *coordination, "--data", "d").spared_listener == spared


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Authority().issue().write(tmp_path_factory.mktemp("certificates"))


def test_a_listener_with_tls_has_its_own_properties_and_shows_no_secrets(options, certificates):
    lines = (
        "listeners=SSL://a:1,OUTER://b:2\nlistener.security.protocol.map=OUTER:SSL\nssl.keystore.type=PKCS12\n"
        f"ssl.keystore.location={certificates.key_store_p12}\nssl.keystore.password={PASSWORD}\n"
        f"ssl.truststore.location={certificates.trust_store_p12}\nssl.truststore.password={PASSWORD}\n"
        "listener.name.outer.ssl.client.auth=required"
    )
    found = options(lines, "--standalone", "--data", "d")
    assert [one.protocol.name for one in found.listeners] == ["SSL", "SSL"]
    assert [one.properties.get("ssl.client.auth") for one in found.listeners] == [None, "required"]
    assert PASSWORD not in repr(found)


@pytest.mark.parametrize(
    ("lines", "place", "said"),
    [
        ("", "", "listener SSL: ssl.keystore.location: Invalid value, a listener with TLS needs a key store"),
        ("ssl.keystore.location=/no/such", "server.properties:2: ", "listener SSL: ssl.keystore.location=/no/such: "),
        (
            "listener.name.ssl.ssl.keystore.location=/no/such",
            "server.properties:2: ",
            "listener SSL: ssl.keystore.location=/no/such: ",
        ),
    ],
)
def test_certificates_that_can_not_be_used_stop_the_start(refused, lines, place, said):
    assert refused(f"listeners=SSL://a:1\n{lines}").startswith(f"{place}{said}")


@pytest.mark.parametrize("lines", ["security.inter.broker.protocol=SSL", "inter.broker.listener.name=SSL"])
def test_brokers_reach_each_other_by_the_listener_that_is_named(options, certificates, lines):
    secured = f"ssl.keystore.type=PEM\nssl.keystore.location={certificates.key_store_pem}"
    found = options(f"listeners=PLAINTEXT://a:1,SSL://a:2\n{secured}\n{lines}", "--zookeeper", "z:1", "--data", "d")
    assert found.inter_broker_security.protocol.uses_tls


LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("mechanism", "logins", "line", "said"),
    [
        ("PLAIN", {"plain": f"{LOGIN} required user_a=b;"}, 5, f"sasl.jaas.config: the option username of {LOGIN} is"),
        (
            "SCRAM-SHA-512",
            {"plain": f"{LOGIN} required;", "scram-sha-512": f"{LOGIN} required;"},
            6,
            f"sasl.jaas.config: {LOGIN} does not log in by SCRAM-SHA-512",
        ),
        ("plain", {"plain": f"{LOGIN} required;"}, 3, "sasl.mechanism.inter.broker.protocol: plain is not spoken here"),
    ],
)
def test_what_keeps_brokers_from_each_other_is_named_with_its_line(options, mechanism, logins, line, said):
    lines = [
        "listeners=SASL_PLAINTEXT://a:1\nsecurity.inter.broker.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism.inter.broker.protocol={mechanism}\nsasl.enabled.mechanisms=PLAIN",
        *(f"listener.name.sasl_plaintext.{name}.sasl.jaas.config={login}" for name, login in logins.items()),
    ]
    with pytest.raises(InvalidConfigError) as error:
        options("\n".join(lines), "--zookeeper", "z:1", "--data", "d")
    sentence = f"{line}: listener SASL_PLAINTEXT, by which brokers reach each other: {said}"
    assert str(error.value).partition("server.properties:")[2].startswith(sentence)


BEARER = "org.apache.kafka.common.security.oauthbearer"
BY_TOKEN = f"""listeners=SASL_PLAINTEXT://a:1
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=OAUTHBEARER
sasl.enabled.mechanisms=OAUTHBEARER
sasl.oauthbearer.jwks.endpoint.url=file:///keys
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={BEARER}.OAuthBearerLoginModule required """
CLIENT = 'clientId="broker" clientSecret="between" scope="brokers";\n'
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
ON_LISTENER = "listener.name.sasl_plaintext."
OF_MECHANISM = f"{ON_LISTENER}oauthbearer."


@pytest.mark.parametrize(
    ("lines", "url"),
    [
        (f"{TOKEN_URL}=http://all", "http://all"),
        (f"{ON_LISTENER}{TOKEN_URL}=http://own\n{TOKEN_URL}=http://all", "http://own"),
        (f"{OF_MECHANISM}{TOKEN_URL}=http://one\n{ON_LISTENER}{TOKEN_URL}=http://own", "http://one"),
    ],
)
def test_brokers_log_in_by_a_token_from_the_address_of_their_listener(options, lines, url):
    handler = f"{OF_MECHANISM}sasl.login.callback.handler.class={BEARER}.OAuthBearerLoginCallbackHandler"
    timeout = "sasl.login.read.timeout.ms=5"
    found = options(f"{BY_TOKEN}{CLIENT}{lines}\n{handler}\n{timeout}", "--zookeeper", "z:1", "--data", "d")
    said = repr(found.inter_broker_security)
    assert f"{TOKEN_URL}={url}," in said
    assert timeout in said
    assert "between" not in said
    assert found.inter_broker_security.mechanism == "OAUTHBEARER"


def test_brokers_log_in_by_a_token_that_nobody_signs_where_that_is_said(options):
    handler = f"{BEARER}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    login = f'unsecuredLoginStringClaim_sub="broker";\n{OF_MECHANISM}sasl.server.callback.handler.class={handler}'
    found = options(f"{BY_TOKEN}{login}", "--zookeeper", "z:1", "--data", "d")
    assert found.inter_broker_security.new_mechanism().name == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (";", f"6: {{}}sasl.jaas.config: no token can be had; give {TOKEN_URL}, or for tests unsecuredLogin"),
        (CLIENT.replace("clientSecret", "secret") + f"{TOKEN_URL}=http://a",
         "6: {}sasl.jaas.config: the option clientSecret is missing"),
        (f"{CLIENT}{TOKEN_URL}=ftp://a", f"7: {{}}{TOKEN_URL}: expected https, http or file, not 'ftp'"),
        (f"{CLIENT}{TOKEN_URL}=a\n{OF_MECHANISM}{TOKEN_URL}=b", f"8: {{}}{TOKEN_URL}: expected https, http or file"),
        (f"{CLIENT}{TOKEN_URL}=http://a\nsasl.login.read.timeout.ms=0", "8: {}sasl.login.read.timeout.ms: expected a"),
        (f"{CLIENT}{TOKEN_URL}=http://a\nsasl.login.callback.handler.class=a.B",
         "8: {}sasl.login.callback.handler.class: this names something of Java"),
        (f"{CLIENT}sasl.login.retry.backoff.ms=soon",
         "7: Invalid value soon for configuration sasl.login.retry.backoff.ms"),
    ],
)  # fmt: skip
def test_what_keeps_brokers_from_a_token_is_named_with_its_line(options, login, said):
    with pytest.raises(InvalidConfigError) as error:
        options(f"{BY_TOKEN}{login}", "--zookeeper", "z:1", "--data", "d")
    sentence = said.format("listener SASL_PLAINTEXT, by which brokers reach each other: ")
    assert str(error.value).partition("server.properties:")[2].startswith(sentence)
    assert "between" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("listener.name.X.plain.sasl.jaas.config=word", "5: listener.name.x.plain.sasl.jaas.config: expected a login"),
        ("listener.name.x.sasl.enabled.mechanisms=GSS", "5: sasl.enabled.mechanisms=GSS: Invalid value, expected some"),
        ("sasl.enabled.mechanisms=GSS", "5: sasl.enabled.mechanisms=GSS: Invalid value, expected some"),
        ("num.partitions=1", "4: listener.name.x.plain.sasl.jaas.config is missing"),
    ],
)
def test_what_keeps_clients_from_a_login_is_named_with_its_line(refused, lines, said):
    listening = "listeners=A://a:1,X://a:2\nlistener.security.protocol.map=A:PLAINTEXT,X:SASL_PLAINTEXT\n"
    sentence = refused(f"{listening}log.dirs=d\nsasl.enabled.mechanisms=PLAIN\n{lines}")
    assert sentence.startswith(f"server.properties:{said}")


def test_what_keeps_brokers_from_each_other_by_tls_is_named_with_its_line(options, certificates):
    lines = (
        "listeners=SSL://a:1\nsecurity.inter.broker.protocol=SSL\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={certificates.key_store_pem}\n"
        "listener.name.ssl.ssl.endpoint.identification.algorithm=http"
    )
    with pytest.raises(InvalidConfigError) as error:
        options(lines, "--zookeeper", "z:1", "--data", "d")
    sentence = "5: listener SSL, by which brokers reach each other: ssl.endpoint.identification"
    assert str(error.value).partition("server.properties:")[2].startswith(sentence)


def test_an_argument_takes_the_place_of_all_listeners(options):
    found = options(f"{TWO}", "--standalone", "--data", "d", "--listen", "127.0.0.1:7")
    assert [(one.name, str(one.address)) for one in found.listeners] == [("PLAINTEXT", "127.0.0.1:7")]


def test_an_argument_that_listens_everywhere_needs_what_clients_are_told(refused):
    assert "advertised.listeners=PLAINTEXT://HOST:PORT" in refused("", "--listen", "0.0.0.0:9092")


SASL = """listeners=EXTERNAL://:9092
advertised.listeners=EXTERNAL://host:9092
listener.security.protocol.map=EXTERNAL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.external.scram-sha-256.connections.max.reauth.ms=5000
listener.name.external.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="hush";
"""


def test_a_listener_with_sasl(options):
    security = options(SASL, "--standalone", "--data", "d").authentications["EXTERNAL"]
    assert (security.listener, security.mechanisms) == ("EXTERNAL", ("PLAIN", "SCRAM-SHA-256"))
    assert (security.passwords, security.max_reauth_ms["SCRAM-SHA-256"]) == ({"alice": "hush"}, 5000)
    assert options("", "--standalone", "--data", "d").authentications == {}


def test_a_listener_with_sasl_without_its_login_module(refused):
    said = refused(SASL.replace(".plain.", ".scram-sha-512."))
    assert "listener.name.external.plain.sasl.jaas.config is missing" in said
