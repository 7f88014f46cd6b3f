"""The jobs that a child process can do, each on one table: what `warehouse load` and `warehouse reload` do.

A job is written as JSON, in which `kind` says what is to be done. Another kind is another class here, a member of
`Job`, and a case of `child.do`. A job is data alone, so that the process that asks for it needs no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from millrace_pipelines.warehouse.ledger.selection import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport

Report: TypeAlias = LoadReport | ReloadReport


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """Appends what the topic has and the table doesn't.

    Attributes:
        key: Names the job among those of its run; loads of assets take the asset key as a string.
        options: What to load where. Jobs share one session, so that `master` and `spark_settings` have no effect.
    """

    key: str
    options: LoadOptions
    kind: Literal["load"] = "load"


@dataclass(frozen=True, kw_only=True)
class ReloadJob:
    """Reads a part of the topic again, and replaces what the table has of it.

    Attributes:
        key: As for a load.
        options: As for a load.
        selection: Which part; `until_table_begins` makes it a backfill.
    """

    key: str
    options: LoadOptions
    selection: Selection = field(default_factory=Selection)
    kind: Literal["reload"] = "reload"


Job: TypeAlias = Annotated[LoadJob | ReloadJob, Field(discriminator="kind")]
