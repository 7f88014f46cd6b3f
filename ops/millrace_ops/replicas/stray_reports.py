"""The door to the brokers' admin endpoints: asks which stray logs they hold, and has them adopt a topic.

Each request is one connection without redirects and proxies, so that the token goes to the named broker alone.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from millrace.addresses import Address
from millrace.errors import PlatformError
from millrace.security.admin_token import WAY_ON
from millrace_ops.replicas.adoption import AdoptionRefusedError, Held, OfflineReplica, StrayReplica

TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 64 << 20
SHOWN_BYTES = 200
JSON = "application/json"
OK, UNAUTHORIZED, FIRST_SERVER_ERROR = 200, 401, 500
T = TypeVar("T")


class AdminUnreachableError(PlatformError, retriable=True):
    """An admin endpoint does not answer, or not at the moment."""


class InternalTopic(NamedTuple):
    """The number of partitions, and the configuration, with which a broker creates an internal topic."""

    partitions: int
    config: Mapping[str, str]


class BrokerReport(NamedTuple):
    """What a broker knows of a topic: the live brokers, the id that it has now, if any, and the broker's stray logs.

    `internal` is how the broker would create the topic itself, None for a topic that is not internal.
    """

    broker: int
    cluster_id: str
    brokers: tuple[int, ...]
    topic_id: str | None
    internal: InternalTopic | None
    strays: tuple[StrayReplica, ...]
    offline: tuple[OfflineReplica, ...]


class AdminEndpoint(NamedTuple):
    """The admin endpoint of a broker: its address, its token ("" for none), and its TLS context (None without TLS)."""

    address: Address
    token: str
    context: ssl.SSLContext | None = None

    def report(self, topic: str) -> BrokerReport:
        """Returns what the broker knows of a topic; raises AdminUnreachableError or AdoptionRefusedError."""
        answer = self._exchange("GET", f"/strays?topic={quote(topic, safe='')}", None)
        return self._understood(answer, lambda fields: _report(topic, fields))

    def skip_producer_ids(self, first_free: int) -> None:
        """Has the broker give higher producer ids only. Raises what `report` raises."""
        self._exchange("POST", "/strays/producer-ids", {"first_free_producer_id": first_free})

    def adopt(self, body: Mapping[str, object]) -> None:
        """Has the broker add a topic to the cluster's metadata. Raises what `report` raises."""
        self._exchange("POST", "/strays/adopt", body)

    def _exchange(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        connection = self._connection()
        headers: dict[str, str | bytes] = {"Content-Type": JSON}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}".encode()
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            status, content = response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            raise AdminUnreachableError(f"{self._name}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if status != OK:
            raise self._refusal(status, content)
        return self._understood(content, json.loads)

    def _connection(self) -> HTTPConnection:
        host, port = self.address
        if self.context is None:
            return HTTPConnection(host, port, timeout=TIMEOUT_S)
        return HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self.context)

    def _refusal(self, status: int, content: bytes) -> PlatformError | AdoptionRefusedError:
        if status == UNAUTHORIZED:
            return AdoptionRefusedError(f"{self._name} asks for its token; {WAY_ON}")
        try:
            reason = json.loads(content)["error"]
        except (ValueError, KeyError, TypeError):
            reason = f"status {status}: {content[:SHOWN_BYTES]!r}"
        kind = AdminUnreachableError if status >= FIRST_SERVER_ERROR else AdoptionRefusedError
        return kind(f"{self._name} answers: {reason}")

    def _understood(self, answer: Any, build: Callable[[Any], T]) -> T:
        try:
            return build(answer)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AdminUnreachableError(
                f"{self._name}: the answer is not that of a broker's admin endpoint: {error}"
            ) from error

    @property
    def _name(self) -> str:
        return f"the admin endpoint {self.address}"


def held_together(topic: str, reports: Sequence[BrokerReport]) -> Held:
    """Returns what all brokers hold of a topic that can be adopted.

    Raises AdoptionRefusedError if the topic exists, if the brokers belong to several clusters, or if a live broker was
    not asked, which may have logs that no other broker has.
    """
    clusters = {one.cluster_id for one in reports}
    if len(clusters) > 1:
        raise AdoptionRefusedError(f"the brokers belong to different clusters: {', '.join(sorted(clusters))}")
    live = {broker for one in reports for broker in one.brokers}
    unasked = sorted(live - {one.broker for one in reports})
    if unasked:
        raise AdoptionRefusedError(
            f"broker(s) {','.join(map(str, unasked))} are alive and not among --admin; all brokers are asked, and so "
            "a cluster with brokers of Apache Kafka adopts no logs"
        )
    existing = next((one.topic_id for one in reports if one.topic_id is not None), None)
    if existing is not None:
        raise AdoptionRefusedError(
            f"topic {topic} exists, with the id {existing}; logs with another id stay as they are, and can be adopted "
            f"once `millrace topics delete {topic}` has made room"
        )
    by_broker = {one.broker: one for one in reports}.values()  # an address may have been given twice
    strays = tuple(each for one in by_broker for each in one.strays)
    return Held(tuple(sorted(live)), strays, tuple(each for one in by_broker for each in one.offline))


def _report(topic: str, fields: Mapping[str, Any]) -> BrokerReport:
    broker, internal = int(fields["broker_id"]), fields["internal_topics"].get(topic)
    return BrokerReport(
        broker,
        str(fields["cluster_id"]),
        tuple(int(one) for one in fields["brokers"]),
        fields["topics"].get(topic),
        None if internal is None else InternalTopic(int(internal["partitions"]), dict(internal["config"])),
        tuple(_stray(broker, one) for one in fields["strays"]),
        tuple(OfflineReplica(broker, int(one["partition"]), str(one["directory"])) for one in fields["offline"]),
    )


def _stray(broker: int, fields: Mapping[str, Any]) -> StrayReplica:
    return StrayReplica(
        broker,
        int(fields["partition"]),
        fields["topic_id"],
        int(fields["log_start_offset"]),
        int(fields["log_end_offset"]),
        tuple((int(epoch), int(offset)) for epoch, offset in fields["leader_epochs"]),
        int(fields["newest_leader_epoch"]),
        int(fields["first_free_producer_id"]),
        int(fields["bytes"]),
    )
