"""Reads a configuration as a broker reads it at its start, and keeps what the broker would say of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from millrace.errors import InvalidConfigError
from millrace_broker.cluster.config_sources import broker_key
from millrace_broker.properties.without_effect import reason
from millrace_broker.startup.options import BrokerOptions, parse_options


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFacts:
    """A configuration. Without `options` the broker does not start with it, and `trouble` says why.

    `warnings` are those of the start. `without_effect` has the properties that are known and not obeyed, and why.
    """

    options: BrokerOptions | None = None
    trouble: str | None = None
    warnings: tuple[str, ...] = ()
    without_effect: tuple[tuple[str, str], ...] = ()


def read_configuration(arguments: Sequence[str]) -> ConfigurationFacts:
    """Returns the facts of the configuration that these arguments of `millrace broker` make."""
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
    """Keeps the sentences of warnings."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._sentences = sentences

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line of the log."""
        self._sentences.append(record.getMessage())


@contextmanager
def _warnings_of(name: str) -> Iterator[list[str]]:
    """Yields the warnings of a logger and of those below it, which go nowhere else meanwhile."""
    logger, sentences = logging.getLogger(name), list[str]()
    handler, passes_on = _Kept(sentences), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield sentences
    finally:
        logger.propagate = passes_on
        logger.removeHandler(handler)
