"""`millrace bench NAME`: measures Millrace beside a yardstick in the same run.

The benchmarks are beside this package, in `millrace_benchmarks`, which no wheel has.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer


class Benchmark(StrEnum):
    """The benchmarks that can be named."""

    APPEND = "append"
    STORAGE = "storage"
    COMPACTION = "compaction"
    PRODUCE = "produce"
    FETCH = "fetch"
    LATENCY = "latency"
    CONNECTIONS = "connections"
    STALLS = "stalls"
    PARTITIONS = "partitions"
    LOAD = "load"
    DECODE = "decode"
    TRANSACTIONS = "transactions"
    REPLICATION = "replication"
    SECURITY = "security"
    CLIENT = "client"
    METRICS = "metrics"
    CONSOLE = "console"
    DAGSTER = "dagster"


def bench(
    name: Annotated[Benchmark, typer.Argument(help=f"What to measure: {', '.join(Benchmark)}.", show_default=False)],
    *,
    peer: Annotated[
        str | None,
        typer.Option(
            help="Measure this beside it in the same run: mock, kafka, kafka-3.9 or spark (`make peers` first)."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file too.")
    ] = None,
) -> None:
    """Measure on loopback, and print each figure beside its yardstick."""
    harness = import_module("millrace_benchmarks.harness")
    if peer is not None and peer not in harness.peers(name):
        raise typer.BadParameter(f"{peer!r} is no peer of bench {name}", param_hint="--peer")
    harness.measure(name, peer, json_file)
