"""Options of `millrace warehouse` that say where the work runs: on Spark, with its settings, or in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from millrace_pipelines.warehouse.tasks import THREADS, Tasks

Settings = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of the Spark session; repeatable.")
]


@dataclass(frozen=True, slots=True)
class Engine:
    """The options for where work on a table's files runs."""

    master: Annotated[
        str | None,
        typer.Option(help="Spark's master, or sc://HOST:PORT, whose tasks do the work; by default threads here."),
    ] = None
    conf: Settings = None

    @contextmanager
    def tasks(self, name: str) -> Iterator[Tasks]:
        """Yields where the work runs, which `name` describes; a Spark session lasts as long as the context."""
        if self.master is None:
            yield THREADS
            return
        from millrace_pipelines.warehouse.spark_tasks import tasks_on

        with tasks_on(self.master, spark_settings(self.conf), name) as tasks:
            yield tasks


def spark_settings(conf: Iterable[str] | None) -> dict[str, str]:
    """Returns the settings given by `--conf NAME=VALUE`; raises typer.BadParameter for any other form."""
    settings = {}
    for text in conf or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--conf")
        settings[name] = value
    return settings
