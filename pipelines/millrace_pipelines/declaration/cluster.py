"""A cluster as it is declared: which table each topic becomes.

That is the table of the declaration that names the topic, else of the first pattern that matches it. What becomes of
all other topics is said by `undeclared_topics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from millrace_pipelines.declaration.attributes import ClusterDeclaration, TableDeclaration, Undeclared
from millrace_pipelines.declaration.keys import AssetKeys, asset_keys
from millrace_pipelines.declaration.state import Environment

RAW = TableDeclaration(pattern=".*")
TOPIC = "{topic}"
NO_ENVIRONMENT = Environment()
CLUSTER_TAG = "millrace/cluster"
GROUP_END = re.compile(r"[._-]")
NO_GROUP_CHARACTERS = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A topic and, unless it is only observed, the table that it becomes.

    Attributes:
        topic: The topic's name.
        declared: What is declared of it; RAW for a topic that no declaration fits.
        location: The table's folder below the warehouse, or its whole path; None for a topic that is only observed.
        schema: The path of the declared schema; None for a table of raw records.
        asset_group: Dagster's group of its assets.
        keys: The keys of its assets.
    """

    topic: str
    declared: TableDeclaration
    location: str | None
    schema: str | None
    asset_group: str
    keys: AssetKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCluster:
    """A cluster's topics and tables, as its definitions are made of them.

    Attributes:
        name: The first part of the asset keys, the name of the resource, and the beginning of all other names.
        known_topics: The topics that the cluster had when it was last asked.
        tables: By the names of the topics.
        reload_since: The first day that can be reloaded by partition.
        has_zookeeper: Whether its brokers run with ZooKeeper, so that there may be groups in it.
        environment: What the environment added when it was last looked at.
    """

    name: str
    known_topics: frozenset[str]
    tables: tuple[DeclaredTable, ...]
    reload_since: date
    has_zookeeper: bool
    environment: Environment

    @property
    def tags(self) -> dict[str, str]:
        """The tags of jobs without assets, which name the cluster.

        The name of a job does not: that of another cluster's job may begin with this cluster's name, too.
        """
        return {CLUSTER_TAG: self.name}

    @property
    def loaded(self) -> tuple[DeclaredTable, ...]:
        """The topics that become tables."""
        return tuple(table for table in self.tables if table.location is not None)


def declared_cluster(
    declaration: ClusterDeclaration,
    topics: Iterable[str],
    directory: Path,
    environment: Environment = NO_ENVIRONMENT,
) -> DeclaredCluster:
    """Returns all topics that are declared by name or known to the cluster, with their tables."""
    known = frozenset(topics)
    named = {table.topic for table in declaration.tables if table.topic is not None}
    chosen = {topic: _chosen(declaration, topic) for topic in sorted(named | known)}
    shown = {topic: declared for topic, declared in chosen.items() if declared is not None or _shows(declaration)}
    is_loaded = declaration.undeclared_topics is Undeclared.LOAD
    return DeclaredCluster(
        name=declaration.cluster,
        known_topics=known,
        tables=tuple(
            DeclaredTable(
                topic=topic,
                declared=declared or RAW,
                location=_location(topic, declared or RAW) if declared is not None or is_loaded else None,
                schema=_schema(topic, declared or RAW, directory, environment.schema_dir),
                asset_group=(declared or RAW).asset_group or default_group(topic),
                keys=asset_keys(declaration.cluster, topic, with_checksum=(declared or RAW).checksum_in_keys),
            )
            for topic, declared in shown.items()
        ),
        reload_since=declaration.reload_since,
        has_zookeeper=bool(declaration.zookeeper) or environment.has_zookeeper,
        environment=environment,
    )


def _shows(declaration: ClusterDeclaration) -> bool:
    return declaration.undeclared_topics is not Undeclared.IGNORE


def _chosen(declaration: ClusterDeclaration, topic: str) -> TableDeclaration | None:
    fitting = [table for table in declaration.tables if table.fits(topic)]
    return min(fitting, key=lambda table: table.topic is None, default=None)


def _location(topic: str, declared: TableDeclaration) -> str:
    return (declared.table or TOPIC).replace(TOPIC, topic)


def _schema(topic: str, declared: TableDeclaration, directory: Path, schema_dir: str) -> str | None:
    if declared.schema_file is not None:
        return str(directory / declared.schema_file.replace(TOPIC, topic))
    path = Path(schema_dir, f"{topic}.json")
    return str(path) if schema_dir and path.is_file() else None


def default_group(topic: str) -> str:
    """Returns the beginning of a topic's name, up to the first `.`, `-` or `_`, so that related topics lie together."""
    beginning = next(part for part in [*GROUP_END.split(topic), topic] if part)
    return NO_GROUP_CHARACTERS.sub("_", beginning).lower()
