"""Options of stores, by the addresses that they are for: credentials, endpoints, regions.

A store finds its credentials by its cloud's usual chain: the environment, a workload's identity, the machine. What that
doesn't have is given as options, whose names are those of delta-rs's object stores, such as `aws_endpoint_url`. They
hold for all addresses that begin with a prefix, "" for all; of several the longest does. They stand in a JSON file,

    {"s3://lake": {"aws_endpoint_url": "https://minio.example.org"}, "gs://": {"google_service_account": "/srv/key"}}

which the variable MILLRACE_STORE_OPTIONS names to all processes that have it in their environment, or are given once to
a process, before it opens a store. A file of declarations has them, too (`stores`). Tasks of Spark get those of their
driver with their work.

A value `env:NAME` stands for that of a variable, which each process reads for itself. Options may be secrets: they have
no place in Spark's settings, logs and metadata, and are never shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from millrace.errors import SetupError
from millrace_pipelines.warehouse.stores.option_names import is_secret, name_faults, option_name

Options: TypeAlias = Mapping[str, str]
Batches: TypeAlias = Iterator[pa.RecordBatch]

VARIABLE = "MILLRACE_STORE_OPTIONS"
ENV = "env:"


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


NONE: Options = {}

_given: StoreOptions | None = None
_over = NONE


def use_store_options(options: Mapping[str, Options] | None, over: Options = NONE) -> None:
    """Gives this process its stores' options, instead of those that it had.

    Args:
        options: Options by the prefixes of addresses; None for those of the environment.
        over: Options for all addresses, which go before these, and before all that are declared later.
    """
    global _given, _over  # noqa: PLW0603  # like the environment, a process has them once
    _given = None if options is None else StoreOptions(options).over(over)
    _over = over


def store_options() -> StoreOptions:
    """Returns the options of this process, to be handed to tasks that work for it.

    Raises:
        SetupError: The file that the environment names can't be read.
    """
    if _given is None:
        use_store_options(read_options(os.environ.get(VARIABLE, "")))
    return _given or StoreOptions()


def declare_store_options(stores: Mapping[str, Options]) -> None:
    """Gives this process the options that a declaration has, which go before those of its environment.

    Raises:
        SetupError: An option names a variable that is not set.
    """
    if stores:
        use_store_options({**store_options(), **resolved(stores, os.environ)}, _over)


def resolved(stores: Mapping[str, Options], variables: Mapping[str, str]) -> StoreOptions:
    """Returns options with the values of the variables that they name; raises SetupError where one is not set."""
    return StoreOptions(
        {
            prefix: {
                option_name(key): _resolved(f"{prefix}: {key}", value, variables) for key, value in options.items()
            }
            for prefix, options in stores.items()
        }
    )


def _resolved(where: str, value: str, variables: Mapping[str, str]) -> str:
    if not value.startswith(ENV):
        return value
    name = value.removeprefix(ENV)
    if name not in variables:
        raise SetupError(f"{where}: the environment variable {name} is not set")
    return variables[name]


def declaration_faults(stores: Mapping[str, Options]) -> list[str]:
    """Returns what is wrong with options in a file that others see: names of none, secrets with their values."""
    found = [fault for prefix, options in stores.items() for fault in name_faults(prefix, options)]
    return found + [
        f"{prefix}: {key} is a secret: write {ENV}NAME, which each process reads from its environment"
        for prefix, options in stores.items()
        for key, value in options.items()
        if is_secret(option_name(key)) and not value.startswith(ENV)
    ]


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
        found = {prefix: {key: str(value) for key, value in own.items()} for prefix, own in said.items()}
    except OSError as error:
        raise SetupError(f"{file}: the options of stores can't be read: {error.strerror}") from error
    except (ValueError, AttributeError):
        raise SetupError(
            f'{file}: options of stores are JSON such as {{"s3://lake": {{"aws_region": "eu-central-1"}}}}'
        ) from None
    if faults := [fault for prefix, own in found.items() for fault in name_faults(prefix, own)]:
        raise SetupError("\n".join(f"{file}: {fault}" for fault in faults))
    return resolved(found, os.environ)


def parsed_options(pairs: Sequence[str]) -> dict[str, str]:
    """Returns options that are written KEY=VALUE.

    Raises:
        SetupError: One has no `=`, and its text is not repeated, for it may be a secret; or no store has such one.
    """
    split = [pair.partition("=") for pair in pairs]
    if any(not key or not equals for key, equals, _ in split):
        raise SetupError("an option of a store is written KEY=VALUE, such as aws_region=eu-central-1")
    found = {option_name(key.strip()): value for key, _, value in split}
    if faults := name_faults("", found):
        raise SetupError("\n".join(faults))
    return dict(resolved({"": found}, os.environ)[""])
