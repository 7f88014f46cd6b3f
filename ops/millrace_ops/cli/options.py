"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[str, typer.Option(metavar="HOST:PORT[,...]", help="Brokers to find the cluster by.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text for people.")]
