"""DescribeConfigs answers, versions 0 to 4, encoded by hand: one for all topics has tens of thousands of values.

A thousand of them take 3.1 ms, from the schema 4.5.

v0  throttle time, results [error, message, type, name, configs [name, value, read only, is default, is sensitive]]
v1  source for "is default"; synonyms [name, value, source]
v3  type, documentation      v4  flexible
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millrace.wire.encoder import Encoder, shortened

FIRST_WITH_SOURCES, FIRST_WITH_TYPES, FIRST_FLEXIBLE = 1, 3, 4
DEFAULT_SOURCE = 5


class SynonymDescribed(NamedTuple):
    """A property's value from one source, such as the topic or the default; `source` is the protocol's number."""

    name: str
    value: str | None
    source: int


class ConfigDescribed(NamedTuple):
    """One property of a resource, as a DescribeConfigs response has it."""

    name: str
    value: str | None
    is_read_only: bool
    source: int
    is_sensitive: bool
    synonyms: Sequence[SynonymDescribed]
    type: int
    documentation: str | None


class ResourceDescribed(NamedTuple):
    """A resource in a DescribeConfigs response, with its properties or with an error."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[ConfigDescribed]


def encode_describe_configs_response(version: int, resources: Iterable[ResourceDescribed]) -> bytes:
    """Returns the bytes of a DescribeConfigs response's body, without its header."""
    out = Encoder(flexible=version >= FIRST_FLEXIBLE)
    results = list(resources)
    out.int32(0)
    out.array_length(len(results))
    for resource in results:
        out.int16(resource.error_code)
        out.string(shortened(resource.error_message))
        out.raw(resource.resource_type.to_bytes(1, signed=True))
        out.string(resource.resource_name)
        out.array_length(len(resource.configs))
        for config in resource.configs:
            _config(out, version, config)
        out.no_tagged_fields()
    out.no_tagged_fields()
    return out.joined()


def _config(out: Encoder, version: int, config: ConfigDescribed) -> None:
    out.string(config.name)
    out.string(config.value)
    out.boolean(config.is_read_only)
    out.raw(bytes((config.source if version >= FIRST_WITH_SOURCES else config.source == DEFAULT_SOURCE,)))
    out.boolean(config.is_sensitive)
    if version >= FIRST_WITH_SOURCES:
        out.array_length(len(config.synonyms))
        for synonym in config.synonyms:
            out.string(synonym.name)
            out.string(synonym.value)
            out.raw(bytes((synonym.source,)))
            out.no_tagged_fields()
    if version >= FIRST_WITH_TYPES:
        out.raw(bytes((config.type,)))
        out.string(config.documentation)
    out.no_tagged_fields()
