"""Options that the commands of the mirror share: the source clusters, the target cluster, and which topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="NAME=HOST:PORT[,...]",
        help="A source cluster, by the name that its topics get, and brokers to find it by; repeatable.",
    ),
]
SourceClientConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--source-client-config",
        metavar="NAME=FILE",
        help="Kafka's client properties of security for a source; env:VARIABLE for their text; repeatable.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="HOST:PORT[,...]", help="Brokers to find the target cluster by."),
]
TargetClientConfig = Annotated[
    str | None,
    typer.Option(
        "--target-client-config",
        metavar="FILE",
        help="Kafka's client properties of security for the target; env:NAME for a variable with their text.",
    ),
]
Topics = Annotated[
    str | None,
    typer.Option("--topics", metavar="REGEX", help="Only source topics whose whole names match; all by default."),
]
KeepNames = Annotated[
    bool, typer.Option("--keep-names", help="Topics keep their names at the target, else they are NAME.topic.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A file of TOML or JSON that says all of it."),
]
