"""A broker behind TLS: clients of several kinds are served, and who does not fit is told so, on both sides."""

import asyncio
import socket
import ssl
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace_support.certificates import Authority
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

AUTHORITY = Authority()
WAIT_S = 120
SSL = "ssl."


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return AUTHORITY.issue().write(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def client_files(tmp_path_factory):
    return AUTHORITY.issue("CN=alice,OU=Data,O=Example", names=()).write(tmp_path_factory.mktemp("client"), "alice")


def stores(files, prefix=SSL):
    return {
        f"{prefix}keystore.type": "PEM",
        f"{prefix}keystore.location": str(files.key_store_pem),
        f"{prefix}truststore.type": "PEM",
        f"{prefix}truststore.location": str(files.trust_store_pem),
    }


class SecureBroker:
    """A broker with listeners in plaintext and with TLS; a third asks for certificates."""

    def __init__(self, folder, files, **properties):
        self.plain, self.secure, self.mutual = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.process = BrokerProcess(
            folder,
            properties={
                "listeners": f"PLAINTEXT://{self.plain},SSL://{self.secure},MUTUAL://{self.mutual}",
                "listener.security.protocol.map": "MUTUAL:SSL,SSL:SSL,PLAINTEXT:PLAINTEXT",
                "listener.name.mutual.ssl.client.auth": "required",
                **stores(files),
                **properties,
            },
        )

    def logged(self, text):
        """Waits until the broker has logged a text."""
        deadline = threading.Event()
        for _ in range(WAIT_S * 20):
            if text in self.process.read_log():
                return True
            deadline.wait(0.05)
        raise AssertionError(f"{text!r} is not in the log:\n{self.process.read_log()}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory, files):
    one = SecureBroker(tmp_path_factory.mktemp("broker"), files)
    with one.process:
        yield one


def librdkafka(address, files, **more):
    return {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.trust_store_pem),
        **more,
    }


def with_key(files):
    return {"ssl.certificate.location": str(files.certificate), "ssl.key.location": str(files.key)}


def round_trip(config, topic, values):
    """Sends values with librdkafka and returns what it reads."""
    failures = []
    producer = Producer({**config, "linger.ms": 50, "message.max.bytes": 20_000_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    consumer = Consumer(
        {**config, "group.id": topic, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 20_000_000}
    )
    consumer.subscribe([topic])
    read = []
    while len(read) < len(values):
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None, message.error()
        read.append(message.value())
    consumer.close()
    return read


def test_a_client_learns_the_addresses_of_its_listener(broker, files, client_files):
    seen = {
        address: [f"{one.host}:{one.port}" for one in AdminClient(config).list_topics(timeout=WAIT_S).brokers.values()]
        for address, config in {
            broker.plain: {"bootstrap.servers": broker.plain},
            broker.secure: librdkafka(broker.secure, files),
            broker.mutual: librdkafka(broker.mutual, files, **with_key(client_files)),
        }.items()
    }
    assert seen == {address: [address] for address in seen}


def test_large_batches_go_to_and_fro_with_librdkafka(broker, files):
    values = [bytes([index % 251]) * 900_000 for index in range(24)]
    assert round_trip(librdkafka(broker.secure, files), "large", values) == values


def test_many_small_records_go_to_and_fro_over_mutual_tls(broker, files, client_files):
    values = [b"value %d" % index for index in range(5_000)]
    assert round_trip(librdkafka(broker.mutual, files, **with_key(client_files)), "small", values) == values


def test_kafka_python(broker, files):
    config = {"bootstrap_servers": broker.secure, "security_protocol": "SSL", "ssl_cafile": str(files.trust_store_pem)}
    producer = KafkaProducer(**config)
    for index in range(100):
        producer.send("kafka-python", b"%d" % index, partition=0)
    producer.flush(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(**config, auto_offset_reset="earliest", consumer_timeout_ms=1000 * WAIT_S)
    consumer.assign([TopicPartition("kafka-python", 0)])
    read = [next(consumer).value for _ in range(100)]
    consumer.close()
    assert read == [b"%d" % index for index in range(100)]


def test_aiokafka(broker, files):
    context = ssl.create_default_context(cafile=str(files.trust_store_pem))
    config = {"bootstrap_servers": broker.secure, "security_protocol": "SSL", "ssl_context": context}

    async def run():
        async with AIOKafkaProducer(**config) as producer:
            for index in range(100):
                await producer.send_and_wait("aiokafka", b"%d" % index, partition=0)
        async with AIOKafkaConsumer("aiokafka", **config, auto_offset_reset="earliest") as consumer:
            return [(await consumer.getone()).value for _ in range(100)]

    assert asyncio.run(asyncio.wait_for(run(), WAIT_S)) == [b"%d" % index for index in range(100)]


def refusal_of(config, expected):
    """Waits until librdkafka reports what is expected of a broker that it can't use; returns all that it reports."""
    errors = []
    client = Producer({**config, "error_cb": lambda error: errors.append(str(error).lower())})
    for _ in range(WAIT_S * 10):
        client.poll(0.1)
        if any(expected in error for error in errors):
            break
    return " ".join(errors)


def test_a_client_without_a_certificate_is_refused_by_name(broker, files):
    expected = "certificate required"
    assert expected in refusal_of(librdkafka(broker.mutual, files), expected)
    broker.logged("on listener MUTUAL: it shows no certificate")


def test_a_client_of_another_authority_is_refused_by_name(broker, files, tmp_path):
    stranger = Authority("Another CA").issue("CN=mallory", names=()).write(tmp_path)
    expected = "unknown ca"
    assert expected in refusal_of(librdkafka(broker.mutual, files, **with_key(stranger)), expected)
    broker.logged("on listener MUTUAL: its certificate is not trusted: ")


def test_an_expired_certificate_of_a_client_is_refused_by_name(broker, files, tmp_path):
    old = AUTHORITY.issue("CN=old", names=(), expired=True).write(tmp_path)
    expected = "certificate expired"
    assert expected in refusal_of(librdkafka(broker.mutual, files, **with_key(old)), expected)
    broker.logged("its certificate is not trusted: certificate has expired")


@pytest.mark.parametrize(
    ("identity", "logged"),
    [
        (AUTHORITY.issue(expired=True), "certificate expired"),
        (AUTHORITY.issue(names=("elsewhere.example",)), "bad certificate"),
        (Authority("Another CA").issue(), "unknown ca"),
    ],
    ids=["expired", "another host", "another authority"],
)
def test_a_client_refuses_the_broker_and_the_log_says_why(tmp_path, files, identity, logged):
    one = SecureBroker(tmp_path / "data", identity.write(tmp_path))
    with one.process:
        expected = "certificate verify failed"
        assert expected in refusal_of(librdkafka(one.secure, files), expected)
        one.logged(f"most likely as it does not trust the broker's certificate: {logged}")


def s_client(address, *arguments, stdin=b"Q\n"):
    command = ["openssl", "s_client", "-connect", address, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=WAIT_S, check=False)
    return (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.parametrize(("version", "name"), [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")])
def test_both_versions_are_spoken_with_forward_secrecy(broker, files, version, name):
    said = s_client(broker.secure, version, "-CAfile", str(files.trust_store_pem), "-verify_return_error")
    assert f"New, {name}" in said or f"Protocol  : {name}" in said
    assert "Verify return code: 0 (ok)" in said
    assert "Secure Renegotiation IS" in said
    assert "GCM" in said or "CHACHA20" in said


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_older_versions_are_not_spoken(broker, version):
    said = s_client(broker.secure, version, "-cipher", "ALL:@SECLEVEL=0")
    assert "Cipher is (NONE)" in said or "Cipher    : 0000" in said
    broker.logged("it speaks no version of TLS that the listener does")


@pytest.mark.parametrize(
    "cipher", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES256-SHA384"]
)
def test_old_ciphers_are_not_spoken(broker, cipher):
    said = s_client(broker.secure, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
    assert "Cipher is (NONE)" in said
    broker.logged("it has no cipher suite that the listener has")


def test_renegotiation_is_refused(broker):
    said = s_client(broker.secure, "-tls1_2", stdin=b"R\n")
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said


def test_plaintext_at_a_port_of_tls_is_refused_by_name(broker):
    client = Producer({"bootstrap.servers": broker.secure})
    client.poll(0.5)
    broker.logged("on listener SSL: it does not speak TLS; its security.protocol must be SSL")


def test_tls_and_http_at_a_port_without_tls_are_refused_by_name(broker, files):
    client = Producer(librdkafka(broker.plain, files))
    client.poll(0.5)
    broker.logged("on listener PLAINTEXT: it looks like TLS; its security.protocol must be PLAINTEXT here")
    host, port = broker.plain.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert browser.recv(1) == b""
    broker.logged("on listener PLAINTEXT: it looks like HTTP, and here Kafka's protocol is spoken")


def presented(address, files):
    """The serial number of the certificate that a new connection is shown."""
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=str(files.trust_store_pem))
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return int(secure.getpeercert()["serialNumber"], 16)


@pytest.mark.broker_errors(
    r"listener (SSL|MUTUAL) keeps its former certificates: \S+: Invalid value, expected one private"
)
def test_a_new_certificate_in_the_same_file_is_used_and_a_bad_one_is_not(tmp_path):
    first, second = AUTHORITY.issue(), AUTHORITY.issue()
    files = first.write(tmp_path)
    one = SecureBroker(tmp_path / "data", files)
    with one.process:
        consumer = Consumer({**librdkafka(one.secure, files), "group.id": "g"})
        assert consumer.list_topics(timeout=WAIT_S).brokers
        assert presented(one.secure, files) == first.certificate.serial_number
        files.key_store_pem.write_text("not a certificate")
        one.logged("listener SSL keeps its former certificates: ssl.keystore.location=")
        assert presented(one.secure, files) == first.certificate.serial_number
        second.write(tmp_path)
        until(lambda: presented(one.secure, files) == second.certificate.serial_number)
        one.logged("listener SSL uses new certificates")
        assert consumer.list_topics(timeout=WAIT_S).brokers  # over the connection from before
        consumer.close()


def altered(admin, **properties):
    """Changes live properties of broker 1, as kafka-configs does, and returns the error."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in properties.items()
    ]
    [done] = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)]
    ).values()
    return done.exception(WAIT_S)


def test_a_certificate_is_renewed_by_a_live_change_and_a_bad_one_is_refused(files, tmp_path):
    broker = SecureBroker(tmp_path / "data", files)
    with broker.process:
        _live_changes(broker, files, tmp_path)


def _live_changes(broker, files, tmp_path):
    renewed = AUTHORITY.issue()
    location = "listener.name.ssl.ssl.keystore.location"
    admin = AdminClient({"bootstrap.servers": broker.plain})
    error = altered(admin, **{location: str(tmp_path / "no-such.pem")})
    assert "can't be read: No such file or directory" in str(error)
    before = presented(broker.secure, files)
    assert altered(admin, **{location: str(renewed.write(tmp_path).key_store_pem)}) is None
    assert presented(broker.secure, files) == renewed.certificate.serial_number
    assert presented(broker.secure, files) != before
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert described[location].value == str(tmp_path / "server.store.pem")
    assert "only per-listener using the listener prefix" in str(altered(admin, **{"ssl.keystore.location": "/x"}))
    assert "keeps no secrets" in str(altered(admin, **{"listener.name.ssl.ssl.key.password": "hush"}))
    broker.process.restart()
    assert presented(broker.secure, files) == renewed.certificate.serial_number


def resident_kib(pid):
    return next(
        int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
    )


def test_slow_readers_are_bounded_in_memory_and_get_all_in_the_end(broker, files):
    """Asks ten times for 50 MB on each of eight connections, and takes none of it at first."""
    round_trip(librdkafka(broker.secure, files), "slow", [bytes(900_000)] * 60)
    context = ssl.create_default_context(cafile=str(files.trust_store_pem))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
    wanted = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 50 << 20, "isolation_level": 0,
        "topics": [{"topic": "slow", "partitions": [partition]}],
    }  # fmt: skip
    body = encode(ApiKey.FETCH, 4, Direction.REQUEST, wanted)
    before = resident_kib(broker.process.pid)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(RawConnection(broker.secure, receive_buffer_bytes=64 << 10, context=context))
            for _ in range(8)
        ]
        for reader in readers:
            for _ in range(10):
                reader.send(ApiKey.FETCH, 4, body)
        assert AdminClient(librdkafka(broker.secure, files)).list_topics(timeout=WAIT_S).topics
        held_kib = resident_kib(broker.process.pid) - before
        assert held_kib < 120 << 10
        sizes = {len(readers[0].receive(ApiKey.FETCH, 4)) for _ in range(3)}
    assert all(40 << 20 < size <= 51 << 20 for size in sizes)
