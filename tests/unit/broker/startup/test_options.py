"""What the broker makes of its file and arguments: a property works, or one sentence names it and where it stands."""

import pytest

from millrace.errors import InvalidConfigError
from millrace_broker.startup.options import parse_options
from millrace_support.certificates import PASSWORD, Authority

# The uncommented lines of config/server.properties as Kafka 3.9 ships it.
SHIPPED = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
# The same of config/server.properties of Kafka 4.1, as far as it matters.
SHIPPED_KRAFT = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
log.dirs=/tmp/kraft-combined-logs
"""


@pytest.fixture
def options(tmp_path):
    """Parses a file of these lines, and arguments."""

    def parse(lines="", *arguments):
        file = tmp_path / "server.properties"
        file.write_text(lines, encoding="utf-8")
        return parse_options(["--config", str(file), *arguments])

    return parse


@pytest.fixture
def refused(options, tmp_path):
    """The sentence that stops the start, without the folder of the file."""

    def parse(lines, *arguments):
        with pytest.raises(InvalidConfigError) as error:
            options(lines, "--standalone", "--data", "d", *arguments)
        return str(error.value).replace(f"{tmp_path}/", "")

    return parse


def test_kafkas_file_as_it_is_shipped(options, caplog):
    found = options(SHIPPED)
    assert (found.broker_id, found.zookeeper, found.data_dirs) == (0, "localhost:2181", ("/tmp/kafka-logs",))
    assert found.broker.num_partitions == 1
    assert caplog.messages == []


def test_a_file_of_a_kraft_node_is_called_one(refused):
    said = refused(SHIPPED_KRAFT)
    assert said.startswith(
        "server.properties:1: process.roles=broker,controller: Invalid value, this file is of a KRaft"
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("authorizer.zookeeper.url=other:2181", "access control in another ZooKeeper"),
        ("ssl.provider=BC", "TLS"),
        ("ssl.client.auth=required", "no listener has TLS"),
        ("listener.name.plaintext.max.connections.per.ip=5", "property of one listener"),
        ("sasl.kerberos.service.name=kafka", "SASL"),
        ("sasl.enabled.mechanisms=SCRAM-SHA-512", "no listener has SASL"),
        ("principal.builder.class=com.example.Builder", "authentication"),
        ("zookeeper.ssl.crl.enable=true", "revocation"),
        ("password.encoder.iterations=5000", "passwords"),
        ("create.topic.policy.class.name=com.example.Policy", "policy"),
        ("connections.max.reauth.ms=1000", "no listener has SASL"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("--listen", "127.0.0.1:0")], ids=["", "listen"])
def test_what_would_restrict_access_stops_the_start(refused, lines, said, arguments):
    sentence = refused(f"num.partitions=1\n{lines}\n", *arguments)
    assert sentence.startswith(f"server.properties:2: {lines}: Invalid value, ")
    assert said in sentence
    with pytest.raises(InvalidConfigError, match=r"^" + lines.partition("=")[0].replace(".", r"\.")):
        parse_options(["--standalone", "--data", "d", "--set", lines])


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("zookeeper.set.acls=true", "zookeeper.set.acl"),
        ("security.inter.broker.protocols=SSL", "security.inter.broker.protocol"),
        ("listener.security.protocols.map=A:SSL", "listener.security.protocol.map"),
        ("allow.everyone.if.no.acls.found=false", "allow.everyone.if.no.acl.found"),
        ("zookeeper.ssl.client.enabled=true", "zookeeper.ssl.client.enable"),
        ("super.user=User:admin", "super.users"),
        ("authorizer.class.names=x:y", "authorizer.class.name"),
    ],
)
def test_a_slip_in_the_name_of_a_restriction_is_not_passed_over(refused, slip, meant):
    name = slip.partition("=")[0]
    assert refused(f"{slip}\n") == f"server.properties:1: unknown property {name}; did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.pasword",
        "sasl.jaas.config",
        "listener.name.x.ssl.key.password",
        "listener.name.plaintext.ssl.key.pass",
        "listener.name.plaintext.ssl.key.password",
        "listener.name.plaintext.plain.sasl.jaas.config",
    ],
)
def test_a_secret_is_not_repeated(refused, name):
    sentence = refused(f"{name}=hush")
    assert sentence.startswith(f"server.properties:1: {name}: Invalid value")
    assert "hush" not in sentence


@pytest.mark.parametrize(
    "lines",
    [
        "super.users=",
        "ssl.client.auth=none",
        "sasl.enabled.mechanisms=GSSAPI",
        "ssl.endpoint.identification.algorithm=",
        "allow.everyone.if.no.acl.found=true",
        "security.inter.broker.protocol=PLAINTEXT",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "max.connections.per.ip=10",
        "listener.name.plaintext.max.connections=10",
        "listener.name.plaintext.num.network.threads=10",
        "connection.failed.authentication.delay.ms=5",
    ],
)
def test_what_restricts_nothing_passes(options, lines):
    assert options(lines, "--standalone", "--data", "d").listen.host == "127.0.0.1"


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
        (f"{CLIENT}sasl.login.retry.backoff.ms=soon", "7: sasl.login.retry.backoff.ms=soon: Invalid value, expected"),
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


@pytest.mark.parametrize(
    ("lines", "arguments", "folders"),
    [
        ("log.dir=/a", (), ("/a",)),
        ("log.dir=/a\nlog.dirs=/b, /c,", (), ("/b", "/c")),
        ("log.dirs=\nlog.dir=/a,/b", (), ("/a", "/b")),
        ("log.dirs=/b", ("--data", "/d"), ("/d",)),
        ("log.dirs=/b\nlog.dirs=/c", (), ("/c",)),
    ],
)
def test_folders(options, lines, arguments, folders):
    assert options(lines, "--standalone", *arguments).data_dirs == folders


def test_no_folder_is_said(options):
    with pytest.raises(InvalidConfigError, match=r"--data DIR or log\.dirs"):
        options("", "--standalone")


@pytest.mark.parametrize(
    ("lines", "arguments", "number"),
    [
        ("", (), None),
        ("broker.id=-1", (), None),
        ("broker.id=0", (), 0),
        ("node.id=7", (), 7),
        ("broker.id=3\nnode.id=3", (), 3),
        ("broker.id=3", ("--id", "4"), 4),
        ("broker.id=5000\nbroker.id.generation.enable=false", (), 5000),
        ("broker.id=5000\nreserved.broker.max.id=5000", (), 5000),
    ],
)
def test_the_brokers_id(options, lines, arguments, number):
    assert options(lines, "--standalone", "--data", "d", *arguments).broker_id == number


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("broker.id=-2", "below the minimum -1"),
        ("broker.id=one", "expected a whole number (INT)"),
        ("broker.id=1001", "ids above reserved.broker.max.id=1000 are kept"),
        ("offsets.topic.replication.factor=3", "a standalone broker has one replica"),
        ("transaction.state.log.replication.factor=3", "a standalone broker has one replica"),
        ("default.replication.factor=2", "a standalone broker has one replica"),
        ("remote.log.storage.system.enable=true", "no tiered storage"),
        ("zookeeper.metadata.migration.enable=true", "no KRaft controller"),
        ("port=9093", "takes its place since Kafka 3.0"),
        ("advertised.host.name=kafka", "advertised.listeners=PLAINTEXT://HOST:PORT takes its place"),
        ("broker.id.generation.enable=false", "no broker.id is given"),
        ("num.io.threads=0", "below the minimum 1"),
        ("listener.name.plaintext.max.connection.creation.rate=x", "expected a whole number (INT)"),
        ("group.share.max.groups=40000", "above the maximum 100"),
        ("queued.max.request.bytes=5", "expected -1 or at least"),
        ("group.consumer.heartbeat.interval.ms=99999", "not within 5000 and 15000"),
        ("inter.broker.protocol.version=latest", "does not have the form"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_line(refused, lines, said):
    sentence = refused(f"# a remark\n\n{lines}")
    assert sentence.startswith(f"server.properties:3: {lines}: Invalid value, ")
    assert said in sentence


def test_the_last_of_two_lines_counts_and_is_the_one_that_is_named(options, refused):
    assert options("num.partitions=2\nnum.partitions=3", "--standalone", "--data", "d").broker.num_partitions == 3
    assert refused("num.partitions=2\nnum.partitions=x").startswith("server.properties:2: num.partitions=x: ")


def test_a_line_is_counted_where_it_begins(refused):
    assert refused("log.dirs=/a,\\\n  /b\nnum.partitions=x").startswith("server.properties:3: ")


def test_zk_connect_is_zookeeper_connect(options, refused):
    assert options("zk.connect=a:1/x", "--data", "d").zookeeper == "a:1/x"
    assert options("zk.connect=a:1\nzookeeper.connect=a:1", "--data", "d").zookeeper == "a:1"
    assert options("zookeeper.connect=a:1", "--data", "d", "--set", "zk.connect=b:1").zookeeper == "b:1"
    assert options("", "--data", "d", "--set", "zk.connect=b:1").zookeeper == "b:1"
    assert refused("zookeeper.connect=a:1\nzk.connect=b:1") == (
        "server.properties:2: zk.connect=b:1: Invalid value, zookeeper.connect is given as a:1 and means the same"
    )


def test_a_misspelt_name_is_passed_over_in_a_file_and_refused_where_it_is_typed(options, refused, caplog):
    options("log.retention.hour=24", "--standalone", "--data", "d")
    [said] = caplog.messages
    assert said.endswith(":1: unknown property log.retention.hour is ignored; did you mean log.retention.hours?")
    assert "unknown property log.retention.hour; did you mean log.retention.hours?" in refused(
        "", "--set", "log.retention.hour=24"
    )


def test_two_that_do_not_go_together_are_named_with_the_line_of_one(refused):
    said = refused("log.cleaner.min.compaction.lag.ms=2\nlog.cleaner.max.compaction.lag.ms=1")
    assert said == "server.properties:1: min.compaction.lag.ms=2: Invalid value, above max.compaction.lag.ms=1"


def test_an_empty_restriction_is_not_mentioned(options, caplog):
    options("super.users=", "--standalone", "--data", "d")
    assert caplog.messages == []


def test_the_id_of_the_cluster_has_the_letters_of_one(options, refused):
    assert options("", "--standalone", "--data", "d").cluster_id is None
    assert options("", "--standalone", "--data", "d", "--cluster-id=-TZ0_Z3Q").cluster_id == "-TZ0_Z3Q"
    for wrong in ("", "a b", "a/b", "\u00e4"):
        assert refused("", f"--cluster-id={wrong}").startswith(f"--cluster-id={wrong}: Invalid value, an id is what ")


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


ALONE = ("--standalone", "--data", ".")


def test_a_console_connects_as_its_client_properties_say(tmp_path):
    assert parse_options([*ALONE]).console is None
    console = parse_options([*ALONE, "--set", "admin.console=full"]).console
    assert (console.may_change, console.listener) == (True, "PLAINTEXT")
    file = tmp_path / "console.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n")
    given = ["--set", "admin.console=read-only", "--set", f"admin.console.client.config={file}"]
    with pytest.raises(
        InvalidConfigError, match=r"^admin\.console=read-only: no listener has .* SASL_PLAINTEXT, by which"
    ):
        parse_options([*ALONE, *given])


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (["admin.console=on"], r"^admin\.console=on: Invalid value, expected one of off, read-only, full"),
        (["admin.console=full", "admin.console.client.config=/nowhere"], r"^admin\.console\.client\.config=/nowhere: "),
    ],
)
def test_a_console_that_cannot_be_served_stops_the_start(properties, message):
    with pytest.raises(InvalidConfigError, match=message):
        parse_options([*ALONE, *(part for one in properties for part in ("--set", one))])
