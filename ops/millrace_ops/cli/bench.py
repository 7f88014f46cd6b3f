"""`millrace bench NAME`: figures beside the yardsticks of the same run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Benchmark(StrEnum):
    """The benchmarks there are."""

    APPEND = "append"
    STORAGE = "storage"
    COMPACTION = "compaction"
    PRODUCE = "produce"
    FETCH = "fetch"
    LOAD = "load"


def bench(
    name: Annotated[Benchmark, typer.Argument(help="What to measure.", show_default=False)],
    *,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    """Measure, on loopback and bounded, and print each figure beside its yardstick."""
    from importlib import import_module

    from millrace_ops.bench.figures import show

    show(f"millrace bench {name}", import_module(f"millrace_ops.bench.{name}").run(), json_file)
