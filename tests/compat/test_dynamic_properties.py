"""Every property of a broker is set while it runs, on Apache Kafka 3.9 and 4.1 and here: stored or refused alike.

Each is set for one broker and for all, to a value that fits and to one that does not; those that listeners may have for
themselves also for a listener. What is stored has to be described as the value of that layer. Millrace has to answer as
one of the Kafkas that know the property; `dynamic_properties.tsv` has all that differs, each with its reason:

    for       a broker, all brokers
    name      the property
    value     valid or invalid
    here      stored, or the error
    in 3.9, in 4.1    likewise; `-` where that version does not know the property
    why
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from differential import sides
from differential.session import Session

from millrace.config import MAX_INT, MAX_LONG, ConfigType
from millrace.errors import ErrorCode
from millrace_broker.properties.kafka_properties import BROKER, BY_BROKER, MAX_SHORT, UNKNOWN, kafka_properties
from millrace_broker.properties.listeners import OF_ALL_BROKERS
from millrace_support.kafka_messages import Messages

TABLE = Path(__file__).with_name("dynamic_properties.tsv")
SIDES = (sides.MILLRACE, "Kafka 3.9", "Kafka 4.1")
SET, DELETE = 0, 1
BROKER_RESOURCE = 4
LAYERS = {"a broker": ("1", 2), "all brokers": ("", 3)}  # the resource's name and the source of its values
STORED = "stored"
OF_LISTENER = "listener.name.plaintext."
ALSO_OF_LISTENERS = OF_ALL_BROKERS | {"message.max.bytes", "connections.max.reauth.ms", "sasl.login.class"}
TOP = {ConfigType.SHORT: MAX_SHORT, ConfigType.INT: MAX_INT, ConfigType.LONG: MAX_LONG}
LEAST_THREADS = "1"  # Kafka at most doubles and halves a pool at a time; the harness starts it with few threads
VALID = {
    "compression.type": "gzip",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT",
    "log.cleaner.io.max.bytes.per.second": "1000000.0",
    "log.cleanup.policy": "compact",
    "log.local.retention.bytes": "1000",  # not more than log.retention.bytes
    "log.local.retention.ms": "1000",
    "log.retention.bytes": "1000000",
    "log.retention.ms": "1000000000",
    "max.connection.creation.rate": "300",
    "max.connections": "500",
    "max.connections.per.ip": "400",
    "max.connections.per.ip.overrides": "127.0.0.2:7",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "num.io.threads": LEAST_THREADS,
    "num.network.threads": "2",
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "remote.log.manager.copier.thread.pool.size": "9",
    "remote.log.manager.expiration.thread.pool.size": "9",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b;",
    "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
    "ssl.enabled.protocols": "TLSv1.2",
    "ssl.keystore.type": "PEM",
    "ssl.protocol": "TLSv1.2",
    "ssl.truststore.type": "PEM",
}
INVALID = {"metric.reporters": "no.such.Class", "num.io.threads": "1000", "num.network.threads": "1000"}
ADDRESSES = ("listeners", "advertised.listeners")  # the broker's own one is the valid value


class Asked(NamedTuple):
    """A value that a property is set to."""

    layer: str
    name: str
    kind: str


def valid(row, bootstrap):
    """A value that fits and is not the default, where the table of properties or `VALID` tells one."""
    if row.name in ADDRESSES:
        return f"PLAINTEXT://{bootstrap}"
    if row.name in VALID:
        return VALID[row.name]
    if row.type is ConfigType.BOOLEAN:
        return "false" if row.default == "true" else "true"
    if "|" in row.values:
        return next(one for one in row.values.split("|") if one != row.default)
    if row.type in TOP:
        top = float(row.values.partition("..")[2] or TOP[row.type]) if ".." in row.values else TOP[row.type]
        number = int(row.default) if row.default.lstrip("-").isdigit() else 1000
        return str(number + 1 if number < top else number - 1)
    return str(float(row.default) / 2) if row.type is ConfigType.DOUBLE else "text"


def invalid(row):
    """A value that does not fit; None where every text does, as far as is known."""
    if row.name in INVALID:
        return INVALID[row.name]
    return "x" if row.type in (*TOP, ConfigType.DOUBLE, ConfigType.BOOLEAN) else None


ROWS = [row for (scope, _), row in kafka_properties().items() if scope == BROKER]
ROWS_OF_LISTENERS = [row for row in ROWS if row.changed == BY_BROKER or row.name in ALSO_OF_LISTENERS]


class Broker:
    """One of the three brokers, and how it answers."""

    def __init__(self, side):
        self.side = side
        self.session = Session(side, "IncrementalAlterConfigs", "dynamic properties", 1)
        self.answers = {}

    def alter(self, layer, name, operation, value):
        config = {"name": name, "configOperation": operation, "value": value}
        resource = {"resourceType": BROKER_RESOURCE, "resourceName": LAYERS[layer][0], "configs": [config]}
        answer = self.session.call("IncrementalAlterConfigs", 1, resources=[resource], validateOnly=False)
        code = answer["responses"][0]["errorCode"]
        return ErrorCode(code).name if code else STORED

    def sources(self, layer, name=None):
        """Where the values of a property, or of all, come from."""
        keys = None if name is None else [name]
        resource = {
            "resourceType": BROKER_RESOURCE, "resourceName": LAYERS[layer][0], "configurationKeys": keys,
        }  # fmt: skip
        answer = self.session.call("DescribeConfigs", 1, resources=[resource], includeSynonyms=False)
        return {one["name"]: one["configSource"] for one in answer["results"][0]["configs"]}

    def await_stored(self, layer, names):
        wanted = dict.fromkeys(names, LAYERS[layer][1])
        self.session.until(lambda: self.sources(layer), lambda found: wanted.items() <= found.items())

    def ask_all(self):
        """Sets everything; what a listener has for itself is deleted again, as Kafka judges it with the next one."""
        for layer in LAYERS:
            stored = []
            for row in ROWS:
                for kind, value in (("invalid", invalid(row)), ("valid", valid(row, self.side.bootstrap))):
                    if value is not None:
                        answer = self.alter(layer, row.name, SET, value)
                        self.answers[Asked(layer, row.name, kind)] = answer
                        stored += [row.name] * (answer == STORED)
            self.await_stored(layer, stored)
        for layer in LAYERS:
            for row in ROWS_OF_LISTENERS:
                name = OF_LISTENER + row.name
                answer = self.alter(layer, name, SET, valid(row, self.side.bootstrap))
                self.answers[Asked(layer, name, "valid")] = answer
                if answer == STORED:
                    self.await_stored(layer, [name])
                    assert self.alter(layer, name, DELETE, None) == STORED, name
                    gone = LAYERS[layer][1]
                    self.session.until(
                        lambda layer=layer, name=name: self.sources(layer, name).get(name),
                        lambda found, gone=gone: found != gone,
                    )
        self.session.close()
        return self.answers


@pytest.fixture(scope="module")
def answers(find_peer, tmp_path_factory):
    """What each broker answers, by what is asked."""
    old, new = find_peer("3.9"), find_peer("4.1")
    folder = tmp_path_factory.mktemp("sides")
    with sides.started(folder, old, new, Messages([new, old])) as running, ThreadPoolExecutor() as pool:
        asking = {name: pool.submit(Broker(side).ask_all) for name, side in running.items()}
        yield {name: asked.result() for name, asked in asking.items()}


def known_in(name):
    """The versions of Kafka that know a property, as sides."""
    row = kafka_properties()[BROKER, name.removeprefix(OF_LISTENER)]
    return [side for side, default in zip(SIDES[1:], row.defaults, strict=True) if default != UNKNOWN]


def different(answers):
    """The rows of the table without the reasons."""
    ours, *_ = (answers[side] for side in SIDES)
    for asked in ours:
        known = known_in(asked.name)
        told = [answers[side][asked] if side in known else UNKNOWN for side in SIDES[1:]]
        if ours[asked] not in told:
            yield (*asked, ours[asked], *told)


def test_what_differs_is_in_the_table(answers):
    rows = [tuple(line.split("\t")) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    assert [row[:-1] for row in rows] == list(different(answers))
    assert all(row[-1] for row in rows)


def test_many_are_stored(answers):
    assert {side: sum(one == STORED for one in answers[side].values()) > 100 for side in SIDES} == dict.fromkeys(
        SIDES, True
    )
