"""What the broker makes of its file and arguments: a property works, or one sentence names it and where it stands."""

import re

import pytest

from millrace.errors import InvalidConfigError
from millrace_broker.startup.options import parse_options

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
        ("broker.id=-2", "Value must be at least -1"),
        ("broker.id=one", "Not a number of type INT"),
        ("broker.id=1001", "ids above reserved.broker.max.id=1000 are kept"),
        ("offsets.topic.replication.factor=3", "a standalone broker has one replica"),
        ("transaction.state.log.replication.factor=3", "a standalone broker has one replica"),
        ("default.replication.factor=2", "a standalone broker has one replica"),
        ("remote.log.storage.system.enable=true", "no tiered storage"),
        ("zookeeper.metadata.migration.enable=true", "no KRaft controller"),
        ("port=9093", "takes its place since Kafka 3.0"),
        ("advertised.host.name=kafka", "advertised.listeners=PLAINTEXT://HOST:PORT takes its place"),
        ("broker.id.generation.enable=false", "no broker.id is given"),
        ("num.io.threads=0", "Value must be at least 1"),
        ("listener.name.plaintext.max.connection.creation.rate=x", "Not a number of type INT"),
        ("group.share.max.groups=40000", "Value must be no more than 100"),
        ("queued.max.request.bytes=5", "expected -1 or at least"),
        ("group.consumer.heartbeat.interval.ms=99999", "must be less than or equal to group.consumer.max"),
        ("inter.broker.protocol.version=latest", "does not have the form"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_line(refused, lines, said):
    sentence = refused(f"# a remark\n\n{lines}")
    name, _, value = lines.partition("=")
    assert sentence.startswith("server.properties:3: ")
    assert all(word in sentence for word in (name, value, said))


def test_the_last_of_two_lines_counts_and_is_the_one_that_is_named(options, refused):
    assert options("num.partitions=2\nnum.partitions=3", "--standalone", "--data", "d").broker.num_partitions == 3
    assert refused("num.partitions=2\nnum.partitions=x").startswith(
        "server.properties:2: Invalid value x for configuration num.partitions: "
    )


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
        (
            ["admin.console=on"],
            r"^Invalid value on for configuration admin\.console: String must be one of: off, read-only, full",
        ),
        *(
            (
                ["admin.console=full", f"admin.console.dagster.url={url}"],
                rf"^admin\.console\.dagster\.url={re.escape(url)}: expected http://HOST:PORT",
            )
            for url in ("javascript:alert(1)", "127.0.0.1:3000", "http://", "http://h:0", "http://h:x", "http://h?a=1")
        ),
        (["admin.console=full", "admin.console.client.config=/nowhere"], r"^admin\.console\.client\.config=/nowhere: "),
    ],
)
def test_a_console_that_cannot_be_served_stops_the_start(properties, message):
    with pytest.raises(InvalidConfigError, match=message):
        parse_options([*ALONE, *(part for one in properties for part in ("--set", one))])
