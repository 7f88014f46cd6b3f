"""Options of stores, by the addresses that they are for: credentials, endpoints, regions.

A store finds its credentials by its cloud's usual chain: the environment, a workload's identity, the machine. What that
doesn't have is given as options, whose names are those of delta-rs's object stores, such as `aws_endpoint_url`. They
hold for all addresses that begin with a prefix, "" for all; of several the longest does. They are given once to a
process, before it opens a store, and to the tasks of Spark with their work.

Options may be secrets: they have no place in Spark's settings, logs and metadata, and are never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from millrace.errors import WarehouseError

Options: TypeAlias = Mapping[str, str]

CLIENT_OPTIONS = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "pool_idle_timeout", "proxy_url",
     "http1_only", "http2_only", "user_agent"}
)  # fmt: skip
"""Options of the HTTP client, which all stores have."""


class StoreOptions(dict[str, Options]):
    """Options by the prefixes of addresses; shown, it tells names and no values."""

    def __repr__(self) -> str:
        """Returns prefixes and names of options."""
        return str({prefix: sorted(options) for prefix, options in self.items()})

    def of(self, location: str) -> Options:
        """Returns the options of the longest prefix that a location begins with."""
        fitting = [prefix for prefix in self if location.startswith(prefix)]
        return self[max(fitting, key=len)] if fitting else {}


_given = StoreOptions()


def use_store_options(options: Mapping[str, Options]) -> None:
    """Gives this process its stores' options, instead of those that it had."""
    global _given  # noqa: PLW0603  # like the environment, a process has them once
    _given = StoreOptions(options)


def store_options() -> StoreOptions:
    """Returns the options that this process was given, to be handed to processes that work for it."""
    return _given


def parsed_options(pairs: list[str]) -> dict[str, str]:
    """Returns options that are written KEY=VALUE.

    Raises:
        WarehouseError: One has no `=`; its text is not repeated, for it may be a secret.
    """
    split = [pair.partition("=") for pair in pairs]
    if any(not key or not equals for key, equals, _ in split):
        raise WarehouseError("an option of a store is written KEY=VALUE, such as aws_region=eu-central-1")
    return {key.strip().lower(): value for key, _, value in split}
