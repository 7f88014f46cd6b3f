"""The properties of a producer, under the names of Kafka 0.7 and 0.8 and under those that replaced them.

As keywords the names have `_` for `.`: `queue.time` is `queue_time`. Times are in milliseconds. A class may be given as
an object or by its dotted name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millrace.client.client_settings import check_known
from millrace.config import ConfigTable, build, declared_keys, setting, under_one_name, value_text
from millrace.errors import InvalidConfigError
from millrace.records.compression import Codec
from millrace.security.client_security import ClientSecurity, is_of_security
from millrace.zk.security import ZooKeeperSecurity, split_security

SYNONYMS = {
    "bootstrap.servers": "broker.list",
    "metadata.broker.list": "broker.list",
    "zookeeper.connect": "zk.connect",
    "request.required.acks": "acks",
    "compression.type": "compression.codec",
    "linger.ms": "queue.time",
    "queue.buffering.max.ms": "queue.time",
    "queue.buffering.max.messages": "queue.size",
    "batch.num.messages": "batch.size",
    "message.send.max.retries": "retries",
    "serializer.class": "encoder",
    "key.serializer.class": "key.encoder",
    "partitioner.class": "partitioner",
    "max.in.flight.requests.per.connection": "max.in.flight",
}
PLUGINS = frozenset({"encoder", "key.encoder", "partitioner", "event.handler", "callback.handler"})
CODECS = {codec.name.lower(): codec for codec in Codec} | {str(int(codec)): codec for codec in Codec}
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
MAX_IN_FLIGHT_IDEMPOTENT = 5  # a broker remembers the last five batches of a producer


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The producer's own properties, which `docs/clients.md` lists, and the security of its connections."""

    security: ClientSecurity = ClientSecurity.PLAINTEXT
    broker_list: str = setting("", "HOST:PORT of brokers, with commas between")
    zk_connect: str = setting("", "HOST:PORT[/chroot] of ZooKeeper, to find the brokers by")
    zk_sessiontimeout_ms: int = setting(6000, "how long ZooKeeper may be silent", minimum=1)
    client_id: str = setting("millrace", "what the brokers' logs and quotas call this client")
    producer_type: str = setting("sync", "whether send waits for the acknowledgement", choices=("sync", "async"))
    queue_time: float = setting(5.0, "how long a record waits for others to share its batch", minimum=0)
    queue_size: int = setting(100_000, "records that may wait, or be on their way", minimum=1)
    buffer_memory: int = setting(64 << 20, "bytes of them", minimum=1)
    queue_enqueue_timeout_ms: int = setting(-1, "how long send waits for room; 0 not at all, -1 for ever", minimum=-1)
    batch_size: int = setting(10_000, "most records of a batch", minimum=1)
    batch_bytes: int = setting(1_000_000, "most bytes of a batch of several records, before compression", minimum=1)
    compression_codec: str = setting("none", "the codec of batches", choices=tuple(CODECS))
    acks: str = setting("all", "who has a record before it is acknowledged", choices=tuple(ACKS))
    enable_idempotence: bool = setting(True, "whether brokers drop what is sent twice; with acks=all alone")
    transactional_id: str = setting("", "the name under which transactions fence one another; none for no transactions")
    transaction_timeout_ms: int = setting(60_000, "how long a transaction may be open", minimum=1)
    max_in_flight: int = setting(5, "requests on their way to a broker", minimum=1)
    retries: int = setting(2**31 - 1, "how often a batch is sent again", minimum=0)
    retry_backoff_ms: int = setting(100, "before a batch is sent again", minimum=0)
    request_timeout_ms: int = setting(30_000, "for an answer of a broker", minimum=1)
    delivery_timeout_ms: int = setting(120_000, "for a record's acknowledgement, from send on", minimum=1)
    max_block_ms: int = setting(60_000, "how long send asks again for the metadata of a topic", minimum=0)
    close_timeout_ms: int = setting(30_000, "how long close, or the interpreter's end, waits", minimum=0)
    topic_metadata_refresh_interval_ms: int = setting(300_000, "after which leaders are asked for again", minimum=1)

    @property
    def codec(self) -> Codec:
        """The compression codec of batches."""
        return CODECS[self.compression_codec]

    @property
    def required_acks(self) -> int:
        """The protocol's number of acknowledgements: -1 all in-sync replicas, 1 the leader, 0 none."""
        return ACKS[self.acks]

    @property
    def is_sync(self) -> bool:
        """Whether `send` waits for the acknowledgement."""
        return self.producer_type == "sync"


TABLE = ConfigTable(declared_keys(ProducerSettings))


def parse_settings(
    properties: Mapping[str, Any], keywords: Mapping[str, Any]
) -> tuple[ProducerSettings, dict[str, Any]]:
    """Returns the settings, and the instances of plug-ins (encoders, partitioner, handlers) by property.

    Raises InvalidConfigError, which names an unknown, contradictory or invalid property.

    The properties by which ZooKeeper is secured are left to `parse_zookeeper_security`.
    """
    _, given = split_security(_given(properties, keywords))
    plugins = {name: _plugin(name, given.pop(name)) for name in PLUGINS & given.keys()}
    texts = {name: value if isinstance(value, str) else value_text(value) for name, value in given.items()}
    security = ClientSecurity.from_properties(texts)
    texts = {name: text for name, text in texts.items() if not is_of_security(name)}
    check_known(texts, [*TABLE.keys, *SYNONYMS, *PLUGINS])
    texts = {name: text.lower() if name in {"compression.codec", "acks"} else text for name, text in texts.items()}
    settings = replace(build(ProducerSettings, TABLE.parse(texts)), security=security)
    _check(settings, given)
    return settings, plugins


def parse_zookeeper_security(properties: Mapping[str, Any], keywords: Mapping[str, Any]) -> ZooKeeperSecurity:
    """Returns how these properties secure the session with ZooKeeper; raises InvalidConfigError for wrong ones."""
    securing, _ = split_security(_given(properties, keywords))
    texts = {name: value if isinstance(value, str) else value_text(value) for name, value in securing.items()}
    return ZooKeeperSecurity.from_properties(texts)


def _given(properties: Mapping[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    dotted = ((written.replace("_", "."), value) for written, value in (*properties.items(), *keywords.items()))
    return under_one_name(dotted, SYNONYMS)


def _check(settings: ProducerSettings, given: Mapping[str, object]) -> None:
    if bool(settings.broker_list) == bool(settings.zk_connect):
        raise InvalidConfigError("one of broker.list and zk.connect is to be given")
    if settings.transactional_id and not (settings.enable_idempotence and settings.required_acks == -1):
        raise InvalidConfigError("transactional.id needs enable.idempotence=true and acks=all")
    if not settings.enable_idempotence:
        return
    if "enable.idempotence" in given and settings.required_acks != -1:
        raise InvalidConfigError(f"enable.idempotence needs acks=all, not acks={settings.acks}")
    if settings.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise InvalidConfigError(
            f"max.in.flight={settings.max_in_flight}: with enable.idempotence at most {MAX_IN_FLIGHT_IDEMPOTENT}"
        )


def _plugin(name: str, value: object) -> Any:
    """Returns `value`, or an instance if it is a class or a class's dotted name; raises InvalidConfigError."""
    if isinstance(value, str):
        module, _, attribute = value.replace(":", ".").rpartition(".")
        try:
            value = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidConfigError(f"{name}={value}: no such class: {error}") from error
    return value() if isinstance(value, type) else value
