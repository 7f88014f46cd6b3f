"""Options that the commands of the mirror share: the source clusters, the target cluster, and which topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.errors import MalformedValueError

if TYPE_CHECKING:
    from millrace_pipelines.mirror.settings import MirrorSettings

ALL_TOPICS = ".*"

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
MirroredTopics = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="As at the source, at the target, or NAME/TOPIC; all by default."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A file of TOML that says all of it."),
]


@dataclass(frozen=True, slots=True)
class MirrorAccess:
    """The options of each mirror command for clusters and topics, which the file of `--config` may have instead."""

    source: Source = None
    target: Target = None
    source_client_config: SourceClientConfig = None
    target_client_config: TargetClientConfig = None
    topics: Topics = None
    keep_names: KeepNames = False
    config: ConfigFile = None

    def settings(self) -> MirrorSettings:
        """Returns the settings by the options and the file; raises InvalidConfigError, which names what is wrong."""
        from millrace_pipelines.mirror.settings_file import read_settings

        config = None if self.config is None else str(self.config)
        return read_settings(config, self._options())

    def _options(self) -> dict[str, Any]:
        target = {"bootstrap": self.target, "client_config": self.target_client_config}
        options: dict[str, Any] = {"sources": source_options(self.source or (), self.source_client_config or ())}
        if given_ones := {name: value for name, value in target.items() if value is not None}:
            options["target"] = given_ones
        if self.keep_names:
            options["keep_names"] = True
        if self.topics is not None or self.config is None:
            options["topics"] = [self.topics or ALL_TOPICS]
        return options


def source_options(sources: Iterable[str], client_configs: Iterable[str]) -> list[dict[str, str]]:
    """Returns the sources that options name, as the settings' file has them; raises MalformedValueError."""
    from millrace_pipelines.mirror.settings_file import parse_source

    by_name: dict[str, dict[str, str]] = {}
    for one in sources:
        parsed = parse_source(one)
        by_name[parsed["name"]] = parsed
    for one in client_configs:
        name, equals, file = one.partition("=")
        if not (name and equals and file):
            raise MalformedValueError(f"--source-client-config {one!r}: expected NAME=FILE")
        by_name.setdefault(name, {"name": name})["client_config"] = file
    return list(by_name.values())
