"""Options that the commands of the mirror share: the source clusters, the target cluster, and which topics."""

from __future__ import annotations

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
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A file (TOML) that says all of it."),
]


@dataclass(frozen=True, slots=True)
class MirrorAccess:
    """The options that name a mirror's clusters and topics, each also in the file of `--config`."""

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
        from millrace_pipelines.mirror.settings_file import parse_source

        sources = {one["name"]: one for one in map(parse_source, self.source or ())}
        for text in self.source_client_config or ():
            name, file = pair(text)
            sources.setdefault(name, {"name": name})["client_config"] = file
        target = {"bootstrap": self.target, "client_config": self.target_client_config}
        options: dict[str, Any] = {"sources": list(sources.values())}
        if given_ones := {name: value for name, value in target.items() if value is not None}:
            options["target"] = given_ones
        if self.keep_names:
            options["keep_names"] = True
        if self.topics is not None or self.config is None:
            options["topics"] = [self.topics or ALL_TOPICS]
        return options


def pair(text: str) -> tuple[str, str]:
    """Returns the two parts of NAME=FILE; raises MalformedValueError for another form."""
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise MalformedValueError(f"{text!r}: expected NAME=FILE")
    return name, file
