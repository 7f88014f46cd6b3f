"""`millrace bench security`: what TLS, logins and access lists cost, and how exactly quotas hold.

    TLS             librdkafka produces and consumes behind TLS, as `bench produce` and `bench fetch` do without it
    handshakes      how many a second, and the broker's processor time for one; logins by SCRAM likewise (`logins`)
    access lists    a broker that obeys 1,000 of them beside one without an authorizer: 1-record requests
    quotas          by how much the rates of a producer and a consumer differ from them (`quota_rates`)

    --peer kafka        Apache Kafka 4.1 with the same listeners and certificates; see `subjects`
    --peer kafka-3.9    Apache Kafka 3.9, likewise

Both sides choose the cipher by their own defaults. Rounds alternate, after one that does not count, and medians are
shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.addresses import LOOPBACK
from millrace.client.access import Users, create_acls
from millrace.client.cluster import Cluster
from millrace.clock import SystemClock
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.security.authority import Authority
from millrace.security.sasl.scram import MIN_ITERATIONS
from millrace_benchmarks import logins
from millrace_benchmarks.fetch import consume_once, fill
from millrace_benchmarks.harness import Comparison, Figure, Samples
from millrace_benchmarks.logins import ClientProcesses
from millrace_benchmarks.produce import RAW_LOADS, produce_once, send_raw
from millrace_benchmarks.quota_rates import QUOTA_LOAD, QuotaLoad, deviations
from millrace_benchmarks.raw import RawLoad
from millrace_benchmarks.subjects import Peer, Subject, millrace, subjects

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
TLS, LOGIN = "TLS", "LOGIN"
LISTENERS = {TLS: "SSL", LOGIN: "SASL_PLAINTEXT"}
LOGIN_PROPERTIES = {
    "sasl.enabled.mechanisms": logins.MECHANISM,
    f"listener.name.login.{logins.MECHANISM.lower()}.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # no list allows the client that makes the first ones
}
EVERYONE = Acl("User:ANONYMOUS", "*", AclOperation.ALL, PermissionType.ALLOW)
GOAL_PERCENT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityEffort:
    """How often each figure is measured, and with how much.

    Attributes:
        rounds: How often loads and connections are measured; their medians are shown.
        loads: The size of a value, and how many are produced and consumed.
        client_processes: How many connect at once.
        handshakes: How many there are in a round.
        logins: How many there are in a round.
        access_lists: How many are obeyed.
        raw_load: What is produced under them.
        raw_rounds: How often that is measured.
        quotas: How much a client may do, and for how long.
    """

    rounds: int = 5
    loads: tuple[tuple[int, int], ...] = ((100, 2_000_000), (1024, 300_000))
    client_processes: int = 4
    handshakes: int = 2000
    logins: int = 2000
    access_lists: int = 1000
    raw_load: RawLoad = RAW_LOADS[0]
    raw_rounds: int = 15
    quotas: QuotaLoad = QUOTA_LOAD


FULL = SecurityEffort()


def run(place: Path, peer: Peer | None = None, effort: SecurityEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    return [*_beside_peer(peer, effort, place), *_access_lists(effort, place)]


def _beside_peer(peer: Peer | None, effort: SecurityEffort, place: Path) -> list[Figure]:
    now_ms = SystemClock().now_ms()
    authority, key_store, trusted = Authority.new(now_ms), place / "broker.pem", place / "ca.pem"
    key_store.write_text(authority.issue((LOOPBACK,), now_ms), encoding="utf-8")
    trusted.write_text(authority.trusted, encoding="utf-8")
    properties = {**LOGIN_PROPERTIES, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
    with subjects(place, peer, properties=properties, listeners=LISTENERS) as brokers:
        measure = _Measure(Comparison(brokers, effort.rounds, "security"), effort, str(trusted))
        return [
            *(figure for load in effort.loads for figure in measure.produce(*load)),
            *(figure for load in effort.loads for figure in measure.fetch(*load)),
            *measure.connections(),
            *measure.quotas(),
        ]


class _Measure:
    """Measures TLS, logins and quotas, and returns their figures."""

    def __init__(self, comparison: Comparison[Subject], effort: SecurityEffort, authority_file: str) -> None:
        self._comparison = comparison
        self._effort = effort
        self._authority_file = authority_file

    def produce(self, size_bytes: int, count: int) -> Iterator[Figure]:
        measured = self._measure(lambda one, topic: produce_once(one, topic, self._settings(one), size_bytes, count))
        yield self._comparison.figure(
            f"librdkafka produce by TLS, {size_bytes} B", "records/s", "rate", measured, at_least=1.0
        )
        yield self._comparison.figure("· broker CPU for a GB of values", "s", "cpu", measured)

    def fetch(self, size_bytes: int, count: int) -> Iterator[Figure]:
        topic = fill(self._comparison, size_bytes, count)
        measured = self._measure(lambda one, _: consume_once(one, topic, self._settings(one), size_bytes, count))
        yield self._comparison.figure(
            f"librdkafka consume by TLS, {size_bytes} B", "records/s", "rate", measured, at_least=1.0
        )
        yield self._comparison.figure("· broker CPU for a GB of values", "s", "cpu", measured)

    def connections(self) -> Iterator[Figure]:
        effort = self._effort
        for one in self._comparison.subjects:
            with Cluster(one.bootstrap) as cluster:
                Users(cluster).set_password(logins.USER, [logins.MECHANISM], logins.PASSWORD, MIN_ITERATIONS)
        with ClientProcesses(effort.client_processes) as clients:
            shaken = self._measure(lambda one, _: clients.measure(logins.shake_hands, one, TLS, effort.handshakes))
            logged_in = self._measure(lambda one, _: clients.measure(logins.log_in, one, LOGIN, effort.logins))
        yield self._comparison.figure("TLS handshakes", "1/s", "rate", shaken, at_least=1.0)
        yield self._comparison.figure("· broker CPU for one", "µs", "cpu", shaken)
        yield self._comparison.figure(f"logins by {logins.MECHANISM}", "1/s", "rate", logged_in)
        yield self._comparison.figure("· broker CPU for one", "µs", "cpu", logged_in)

    def quotas(self) -> Iterator[Figure]:
        brokers = self._comparison.subjects
        names = ["", *(f" of {one.name}" for one in brokers[1:])]
        for name, measured in zip(names, deviations(brokers, self._effort.quotas), strict=True):
            for kind in ("producer", "consumer"):
                yield Figure(
                    name=f"deviation{name} from the quota of a {kind}", value=measured[kind], unit="%",
                    yardstick="the goal", yardstick_value=GOAL_PERCENT, at_most=None if name else 1.0,
                )  # fmt: skip

    def _settings(self, subject: Subject) -> dict[str, str]:
        return {
            "bootstrap.servers": subject.addresses[TLS],
            "security.protocol": "SSL",
            "ssl.ca.location": self._authority_file,
        }

    def _measure(self, measure: Callable[[Subject, str], Samples]) -> list[Samples]:
        self._comparison.measure(measure, rounds=1)  # does not count
        return self._comparison.measure(measure)


def _access_lists(effort: SecurityEffort, place: Path) -> list[Figure]:
    with millrace(place, "no-authorizer") as bare, millrace(place, "obeying", properties=AUTHORIZER) as obeying:
        with Cluster(obeying.bootstrap) as cluster:
            create_acls(cluster, list(_bindings(effort.access_lists)))
        comparison = Comparison([obeying, bare], effort.raw_rounds, "listed")
        measured = comparison.measure(lambda one, topic: send_raw(one, topic, effort.raw_load))
    name = f"{effort.access_lists:,} access lists, {effort.raw_load.name}"
    return [
        comparison.figure(name, "requests/s", "rate", measured, at_least=0.98),
        comparison.figure("· broker CPU for a million requests", "s", "cpu", measured),
    ]


def _bindings(count: int) -> Iterator[AclBinding]:
    """Yields what lets this benchmark do its work, and lists of others: on names, and on beginnings of names."""
    allowed = ResourcePattern(ResourceType.TOPIC, "listed-", PatternType.PREFIXED)
    yield AclBinding(allowed, EVERYONE)
    for number in range(1, count):
        pattern_type = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        resource = ResourcePattern(ResourceType.TOPIC, f"topic-{number // 10}", pattern_type)
        yield AclBinding(resource, EVERYONE._replace(principal=f"User:user-{number}", operation=AclOperation.WRITE))
