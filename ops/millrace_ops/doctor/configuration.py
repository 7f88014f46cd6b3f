"""What a configuration means: whether a broker starts with it, what has no effect, and what goes badly together.

It is read as a broker reads it at its start, and what the broker would say of it is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from millrace.config import MAX_LONG
from millrace.errors import InvalidConfigError
from millrace_broker.cluster.config_sources import broker_key
from millrace_broker.properties.restrictions import reason
from millrace_broker.startup.options import BrokerOptions, parse_options
from millrace_broker.storage.config import LogConfig
from millrace_ops.doctor.findings import DoctorFinding, Level, judged
from millrace_ops.sizes import size


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFacts:
    """A broker's configuration, parsed; where it is not valid, `options` is None and `trouble` says why.

    `warnings` are what a broker would log. `without_effect` has the properties that are known and not obeyed, and why.
    """

    options: BrokerOptions | None = None
    trouble: str | None = None
    warnings: tuple[str, ...] = ()
    without_effect: tuple[tuple[str, str], ...] = ()


def read_configuration(arguments: Sequence[str]) -> ConfigurationFacts:
    """Parses the configuration that `millrace broker` would have with these arguments."""
    with _warnings_of("millrace_broker") as warnings:
        try:
            options = parse_options(arguments)
        except InvalidConfigError as error:
            return ConfigurationFacts(trouble=str(error), warnings=tuple(warnings))
    return ConfigurationFacts(options=options, warnings=tuple(warnings), without_effect=tuple(_without_effect(options)))


def _without_effect(options: BrokerOptions) -> Iterator[tuple[str, str]]:
    for name in options.properties:
        key = broker_key(name)
        if key is not None and not key.has_effect:
            yield name, reason(name)


class _Kept(logging.Handler):
    """A logging handler that keeps the sentences of warnings in a list."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._sentences = sentences

    def emit(self, record: logging.LogRecord) -> None:
        """Adds the sentence of a log record to the list."""
        self._sentences.append(record.getMessage())


@contextmanager
def _warnings_of(name: str) -> Iterator[list[str]]:
    """Yields a list of the warnings of a logger and of those below it, which are logged nowhere else meanwhile."""
    logger, sentences = logging.getLogger(name), list[str]()
    handler, passes_on = _Kept(sentences), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield sentences
    finally:
        logger.propagate = passes_on
        logger.removeHandler(handler)


THING = "configuration"
MOST_OF_MEMORY = 0.5


def check_configuration(facts: ConfigurationFacts, memory_bytes: int | None) -> Iterator[DoctorFinding]:
    """Yields findings on whether a broker starts with a configuration, its warnings, and values that risk records."""
    options = facts.options
    if options is None:
        yield DoctorFinding(
            Level.PROBLEM, THING, facts.trouble or "", "one that a broker starts with", "see what was found"
        )
    else:
        yield DoctorFinding(Level.OK, THING, "a broker starts with it", "", "")
    for sentence in facts.warnings:
        yield DoctorFinding(
            Level.ADVICE, THING, sentence, "no warning at the start", "correct the name, or leave it out"
        )
    for name, why in facts.without_effect:
        yield DoctorFinding(Level.ADVICE, name, f"without effect: {why}", "no property without effect", "leave it out")
    if options is not None:
        yield from _check_values(options, memory_bytes)


def _check_values(options: BrokerOptions, memory_bytes: int | None) -> Iterator[DoctorFinding]:
    logs = LogConfig.from_properties(options.log_defaults, {})
    broker, replicas = options.broker, options.broker.default_replication_factor
    # Acknowledged records are to outlive a power cut: synced in time, or on several brokers.
    is_synced = logs.flush_messages < MAX_LONG or logs.flush_ms < MAX_LONG or broker.single_replica_sync_enable
    yield judged(
        "log.flush.interval.messages",
        "the kernel decides when records reach the disk" if not is_synced else "records are synced by a policy",
        "a policy, or several replicas: else a power cut loses acknowledged records",
        "log.flush.interval.messages=1 (none is lost), single.replica.sync.enable=true (none with acks=all), "
        "log.flush.interval.ms=1000 (those of a second), or default.replication.factor=3",
        is_well=is_synced or replicas > 1,
    )
    # Writes with acks=all are to outlive the loss of a broker, and to go on without one.
    yield judged(
        "min.insync.replicas",
        f"{logs.min_insync_replicas} of default.replication.factor={replicas}",
        "2 of 3, or 1 of 1: one broker may be lost or stopped, and neither records nor writes",
        f"min.insync.replicas={max(1, replicas - 1)}",
        is_well=logs.min_insync_replicas == max(1, replicas - 1) or 1 < logs.min_insync_replicas < replicas,
        otherwise=Level.PROBLEM if logs.min_insync_replicas > replicas else Level.ADVICE,
    )
    yield judged(
        "unclean.leader.election.enable",
        str(logs.unclean_leader_election_enable).lower(),
        "false: else a failure may lose acknowledged records",
        "unclean.leader.election.enable=false, and `millrace brokers elect --unclean` for a single case",
        is_well=not logs.unclean_leader_election_enable,
    )
    yield judged(
        "message.max.bytes",
        f"{size(logs.max_message_bytes)}, and socket.request.max.bytes is {size(broker.socket_request_max_bytes)}",
        "less than socket.request.max.bytes",
        "a lower message.max.bytes, or a higher socket.request.max.bytes",
        is_well=logs.max_message_bytes < broker.socket_request_max_bytes,
        otherwise=Level.PROBLEM,
    )
    if memory_bytes is not None:
        buffers = broker.queued_bytes_limit + broker.log_cleaner_dedupe_buffer_size
        # Queued requests and compaction, at their limits, are to leave memory for everything else.
        yield judged(
            "queued.max.request.bytes",
            f"{size(buffers)} with log.cleaner.dedupe.buffer.size, of {size(memory_bytes)} of memory",
            "half of the memory at most",
            f"queued.max.request.bytes={int(memory_bytes / 4)}",
            is_well=buffers <= MOST_OF_MEMORY * memory_bytes,
            otherwise=Level.PROBLEM if buffers > memory_bytes else Level.ADVICE,
        )
