"""Options of stores, by the addresses that they are for: credentials, endpoints, regions.

A store finds its credentials by its cloud's usual chain: the environment, a workload's identity, the machine. What that
doesn't have is given as options, whose names are those of delta-rs's object stores, such as `aws_endpoint_url`. They
hold for all addresses that begin with a prefix, "" for all; of several the longest does. They stand in a JSON file,

    {"s3://lake": {"aws_endpoint_url": "https://minio.example.org"}, "gs://": {"google_service_account": "/srv/key"}}

which the variable MILLRACE_STORE_OPTIONS names to all processes that have it in their environment, or are given once to
a process, before it opens a store. Tasks of Spark get those of their driver with their work.

Options may be secrets: they have no place in Spark's settings, logs and metadata, and are never shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from millrace.errors import SetupError

Options: TypeAlias = Mapping[str, str]
Batches: TypeAlias = Iterator[pa.RecordBatch]

VARIABLE = "MILLRACE_STORE_OPTIONS"
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

    def over(self, options: Options) -> StoreOptions:
        """Returns these options with some for all addresses, which go before those of the same name."""
        known: dict[str, Options] = {"": {}, **self}
        merged = {prefix: {**own, **options} for prefix, own in known.items()}
        return StoreOptions(merged) if options else self


_given: StoreOptions | None = None


def use_store_options(options: Mapping[str, Options] | None) -> None:
    """Gives this process its stores' options, instead of those that it had; None for those of the environment."""
    global _given  # noqa: PLW0603  # like the environment, a process has them once
    _given = None if options is None else StoreOptions(options)


def store_options() -> StoreOptions:
    """Returns the options of this process, to be handed to tasks that work for it.

    Raises:
        SetupError: The file that the environment names can't be read.
    """
    if _given is None:
        use_store_options(read_options(os.environ.get(VARIABLE, "")))
    return _given or StoreOptions()


def carrying(work: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Returns the work of a task of Spark that brings this process's options to the process in which it runs."""
    options = store_options()
    if not options:
        return work

    def brought(batches: Batches) -> Batches:
        use_store_options(options)
        yield from work(batches)

    return brought


def read_options(file: str) -> StoreOptions:
    """Returns the options in a file; none where no file is named.

    Raises:
        SetupError: The file can't be read, or is no such JSON; its content is not repeated.
    """
    if not file:
        return StoreOptions()
    try:
        with open(file, encoding="utf-8") as opened:
            said = json.load(opened)
        return StoreOptions(
            {prefix: {option_name(key): str(value) for key, value in own.items()} for prefix, own in said.items()}
        )
    except OSError as error:
        raise SetupError(f"{file}: the options of stores can't be read: {error.strerror}") from error
    except (ValueError, AttributeError):
        raise SetupError(
            f'{file}: options of stores are JSON such as {{"s3://lake": {{"aws_region": "eu-central-1"}}}}'
        ) from None


def parsed_options(pairs: Sequence[str]) -> dict[str, str]:
    """Returns options that are written KEY=VALUE.

    Raises:
        SetupError: One has no `=`; its text is not repeated, for it may be a secret.
    """
    split = [pair.partition("=") for pair in pairs]
    if any(not key or not equals for key, equals, _ in split):
        raise SetupError("an option of a store is written KEY=VALUE, such as aws_region=eu-central-1")
    return {option_name(key.strip()): value for key, _, value in split}


def option_name(key: str) -> str:
    """Returns an option's name in small letters, but for one with a dot, which is a setting of Hadoop."""
    return key if "." in key else key.lower()
