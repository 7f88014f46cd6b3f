"""A cluster as it is declared, and which table each topic becomes; and the state by which its topics are known.

A topic becomes the table of the declaration that names it, else of the first pattern that matches it. What becomes of
all other topics is said by `undeclared_topics`.

The asset keys of a topic are `CLUSTER/KIND/TOPIC`, where KIND is topic, table, dead_letters, reload or mirror. They
follow from its name alone. What else the cluster has changes none of them, for with a key an asset would lose its
history, its checks and its alerts.

Dagster derives the names of a step's inputs and outputs from keys, and makes an `_` of each `.` and `-`. So that
`shop.orders` and `shop_orders` can be loaded by one step, a step is made for keys that stay apart in this
(`step_key`), and is then given the assets' own keys (`under_own_keys`).

Earlier versions gave topics that differ in these characters alone other keys, which ended with a checksum of the
topic's name. `checksum_in_keys` of a declaration keeps them.

The state is what definitions are made of beside their declarations, as it was when it was last looked at:

    {"version": 1, "topics": ["flights", "orders-eu"], "environment": {"schema_dir": "/srv/schemas", …},
     "first_days": {"flights": "2026-03-01"}, "mirrored": {"east.orders": "east/orders"}}

With it, definitions load without a broker, and are the same in each process, whatever its environment is. Internal
topics are left out. The first day of a topic is that of its first record, in UTC, as it was when it was first asked
for: retention moves it no more. A file that can't be read counts as one that says nothing, and what an earlier version
has not written as not known: the next look writes it again.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from millrace.client import Cluster
from millrace.client.log_offsets import read_first_times
from millrace.internal_topics import INTERNAL_TOPICS
from millrace_pipelines.declaration.attributes import (
    ClusterDeclaration,
    MirrorDeclaration,
    TableDeclaration,
    Undeclared,
)
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC
from millrace_pipelines.mirror.states import STATES_TOPIC
from millrace_pipelines.warehouse.choices import Format
from millrace_pipelines.warehouse.formats import address_in, format_of

NOT_SHOWN = INTERNAL_TOPICS | {STATES_TOPIC, OFFSET_MAP_TOPIC}
"""Topics in which brokers, or a mirror, keep their own state."""
VERSION = 1
EPOCH = date(1970, 1, 1)
END_OF_TIME_MS = (date.max - EPOCH) // timedelta(milliseconds=1)
SCHEMA_DIR = "MILLRACE_SCHEMA_DIR"
ZOOKEEPER = "MILLRACE_ZOOKEEPER"
WEBHOOK = "MILLRACE_WEBHOOK"
ADMIN_URL = "MILLRACE_ADMIN_URL"


class Environment(NamedTuple):
    """The settings that environment variables add to the declarations.

    Attributes:
        schema_dir: The folder of schemas TOPIC.json, for topics whose declaration names none; "" for none.
        has_zookeeper: Whether MILLRACE_ZOOKEEPER is set, so that there may be groups in it.
        has_webhook: Whether MILLRACE_WEBHOOK is set, whose address may be a secret.
        has_admin: Whether MILLRACE_ADMIN_URL is set, so that brokers can be asked for maintenance.
    """

    schema_dir: str = ""
    has_zookeeper: bool = False
    has_webhook: bool = False
    has_admin: bool = False


class State(NamedTuple):
    """The content of the component's state file: topics, the environment, and first days, as last looked at.

    `mirrored` has, by topic, where a mirror has it from: the source's name and the topic there, `NAME/TOPIC`.
    """

    topics: frozenset[str] = frozenset()
    environment: Environment = Environment()
    first_days: Mapping[str, date] = {}
    mirrored: Mapping[str, str] = {}


def environment_of(variables: Mapping[str, str]) -> Environment:
    """Returns the settings that the given environment variables add to the declarations."""
    return Environment(
        schema_dir=variables.get(SCHEMA_DIR, ""),
        has_zookeeper=bool(variables.get(ZOOKEEPER)),
        has_webhook=bool(variables.get(WEBHOOK)),
        has_admin=bool(variables.get(ADMIN_URL)),
    )


def topics_there(cluster: Cluster) -> frozenset[str]:
    """Returns the names of a cluster's topics without internal ones; raises ClientError."""
    return frozenset(cluster.metadata(None).topics.keys() - NOT_SHOWN)


def first_days(cluster: Cluster, topics: Iterable[str]) -> dict[str, date]:
    """Returns the day of each topic's first record, in UTC; raises ClientError where no broker answers.

    Topics that can't be read are left out, and those without a record that has a time.
    """
    names = sorted(topics)
    if not names:
        return {}
    metadata = cluster.metadata(names)
    logs = [(name, partition) for name, topic in metadata.topics.items() for partition in topic.partitions]
    found: dict[str, date] = {}
    for (name, _), time_ms in read_first_times(cluster, logs, metadata=metadata).items():
        if isinstance(time_ms, int) and time_ms < END_OF_TIME_MS:
            day = EPOCH + timedelta(milliseconds=time_ms)
            found[name] = min(found.get(name, day), day)
    return found


def write_state(path: Path, state: State) -> None:
    """Writes the state file in one step, so that no reader sees half of it; raises OSError where that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    content = {
        "version": VERSION,
        "topics": sorted(state.topics),
        "environment": state.environment._asdict(),
        "first_days": {topic: day.isoformat() for topic, day in sorted(state.first_days.items())},
        "mirrored": dict(sorted(state.mirrored.items())),
    }
    written.write_text(json.dumps(content), encoding="utf-8")
    written.replace(path)


def read_state(path: Path | None) -> State:
    """Returns the state in a file; an empty state where there is no such file, or its content is no state."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return State()
    if not isinstance(content, dict) or content.get("version") != VERSION:
        return State()
    return State(
        _topics(content.get("topics")),
        _environment(content.get("environment")),
        _days(content.get("first_days")),
        _mirrored(content.get("mirrored")),
    )


def _topics(names: object) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _environment(fields: object) -> Environment:
    match fields:
        case {"schema_dir": str(schemas), "has_zookeeper": bool(zookeeper), "has_webhook": bool(webhook), **later}:
            return Environment(schemas, zookeeper, webhook, later.get("has_admin") is True)
    return Environment()


def _days(days: object) -> dict[str, date]:
    try:
        return {topic: date.fromisoformat(day) for topic, day in days.items()} if isinstance(days, dict) else {}
    except (TypeError, ValueError):
        return {}


def _mirrored(topics: object) -> dict[str, str]:
    return {one: str(key) for one, key in topics.items()} if isinstance(topics, dict) else {}


def write_topics(path: Path, topics: Iterable[str]) -> None:
    """Replaces the topics in the state file, and leaves the environment in it unchanged."""
    write_state(path, read_state(path)._replace(topics=frozenset(topics)))


def named(what: str, cluster: str) -> str:
    """Returns the name of a cluster's job, sensor, schedule or group of assets, such as `nightly_audit_CLUSTER`.

    What it is comes first, since lists of the UI cut names at the end.
    """
    return f"{what}_{cluster}"


MARKED = re.compile(r".*__[012]+", re.DOTALL)
MARKS = {"_": "0", ".": "1", "-": "2"}


class AssetKeys(NamedTuple):
    """The keys of the assets of one topic."""

    topic: dg.AssetKey
    table: dg.AssetKey
    dead_letters: dg.AssetKey
    reload: dg.AssetKey
    mirror: dg.AssetKey


def asset_keys(cluster: str, topic: str, *, with_checksum: bool = False) -> AssetKeys:
    """Returns the asset keys of a topic, such as CLUSTER/table/TOPIC; no two topics have the same ones."""
    # A topic's own name may end with the checksum of what stands before it: it gets one, too, and no two names meet.
    name = _with_checksum(topic) if with_checksum or topic == _with_checksum(topic.rpartition("_")[0]) else topic
    return AssetKeys(*(dg.AssetKey([cluster, kind, name]) for kind in AssetKeys._fields))


def step_key(key: dg.AssetKey) -> dg.AssetKey:
    """Returns an asset key whose last part is an identifier, as steps need it, unlike that of every other topic."""
    return dg.AssetKey([*key.path[:-1], _identifier(key.path[-1])])


def marks_of(topic: str) -> str:
    """Returns a digit for each `_`, `.` and `-` of a topic's name; "" for most names that have only `_`.

    The name with each of these replaced by `_` stands for one topic only together with these digits.
    """
    is_apart = not re.search(r"[.-]", topic) and not MARKED.fullmatch(topic)
    return "" if is_apart else "".join(MARKS[one] for one in topic if one in MARKS)


def under_own_keys(step: dg.AssetsDefinition, keys: Iterable[dg.AssetKey]) -> dg.AssetsDefinition:
    """Returns a copy of a step that was defined with the keys `step_key(key)`, now with `keys` themselves."""
    return step.with_attributes(asset_key_replacements={step_key(key): key for key in keys})


def _with_checksum(name: str) -> str:
    return f"{name}_{zlib.crc32(name.encode()):08x}"


def _identifier(name: str) -> str:
    return f"{re.sub(r'[.-]', '_', name)}__{marks}" if (marks := marks_of(name)) else name


RAW = TableDeclaration(pattern=".*")
TOPIC = "{topic}"
NO_ENVIRONMENT = Environment()
NO_DAYS: Mapping[str, date] = {}
NONE_MIRRORED: Mapping[str, str] = {}
CLUSTER_TAG = "millrace/cluster"
GROUP_END = re.compile(r"[._-]")
NO_GROUP_CHARACTERS = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A topic and, unless it is only observed, the table that it becomes.

    Attributes:
        topic: The topic's name.
        declared: What is declared of it; RAW for a topic that no declaration fits.
        location: The table's folder below the warehouse, or its whole path or address; None for a topic that is only
            observed.
        schema: The path of the declared schema; None for a table of raw records.
        asset_group: Dagster's group of its assets.
        keys: The keys of its assets.
        first_day: The first day that can be reloaded by partition; None where it has had no record yet.
    """

    topic: str
    declared: TableDeclaration
    location: str | None
    schema: str | None
    asset_group: str
    keys: AssetKeys
    first_day: date | None

    @property
    def format(self) -> Format:
        """Returns the format of the table that the topic becomes."""
        return format_of(self.location or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredMirror:
    """A mirror into a cluster, as declared.

    Attributes:
        declared: What is declared of it.
        config: The path of its settings.
        topics: By topic, where it has it from, `NAME/TOPIC`, as it was when it was last asked.
    """

    declared: MirrorDeclaration
    config: str
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCluster:
    """A cluster with its topics and tables, from which Dagster's definitions are made.

    Attributes:
        name: The first part of the asset keys, the name of the resource, and the end of all other names.
        known_topics: The topics that the cluster had when it was last asked.
        first_days: The days of the first records of those topics that have had any.
        declared: The declarations, in the order of the file.
        tables: The tables in the order of their topics' names, those that are only observed among them.
        load_new_records: Whether tables without a schedule are loaded unless somebody stops the sensor.
        has_zookeeper: Whether its brokers run with ZooKeeper, so that there may be groups in it.
        has_admin: Whether its brokers have an admin endpoint, which Apache Kafka's have not.
        environment: What the environment added when it was last looked at.
        mirror: The mirror into it, if one is declared.
    """

    name: str
    known_topics: frozenset[str]
    first_days: Mapping[str, date]
    declared: tuple[TableDeclaration, ...]
    tables: tuple[DeclaredTable, ...]
    load_new_records: bool
    has_zookeeper: bool
    has_admin: bool
    environment: Environment
    mirror: DeclaredMirror | None = None

    @property
    def tags(self) -> dict[str, str]:
        """Returns the Dagster tag that ties a job without assets to this cluster.

        The job's name would not do: the name of another cluster's job may end with this cluster's name, too.
        """
        return {CLUSTER_TAG: self.name}

    @property
    def loaded(self) -> tuple[DeclaredTable, ...]:
        """Returns the topics that become tables."""
        return tuple(table for table in self.tables if table.location is not None)

    @property
    def in_catalogs(self) -> tuple[str, ...]:
        """Returns the addresses of the tables that are in a catalog, and not in the warehouse."""
        return tuple(one.location for one in self.loaded if one.location and one.format is Format.ICEBERG)


def declared_cluster(
    declaration: ClusterDeclaration,
    topics: Iterable[str],
    directory: Path,
    environment: Environment = NO_ENVIRONMENT,
    first_days: Mapping[str, date] = NO_DAYS,
    *,
    mirrored: Mapping[str, str] = NONE_MIRRORED,
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
        first_days=first_days,
        declared=declaration.tables,
        tables=tuple(
            DeclaredTable(
                topic=topic,
                declared=declared or RAW,
                location=_location(topic, declared or RAW, declaration) if declared is not None or is_loaded else None,
                schema=_schema(topic, declared or RAW, directory, environment.schema_dir),
                asset_group=(declared or RAW).asset_group or default_group(topic),
                keys=asset_keys(declaration.cluster, topic, with_checksum=(declared or RAW).checksum_in_keys),
                first_day=declaration.reload_since or first_days.get(topic),
            )
            for topic, declared in shown.items()
        ),
        load_new_records=declaration.load_new_records,
        has_zookeeper=bool(declaration.zookeeper) or environment.has_zookeeper,
        has_admin=bool(declaration.admin_url) or environment.has_admin,
        environment=environment,
        mirror=_mirror(declaration.mirror, directory, mirrored),
    )


def _mirror(declared: MirrorDeclaration | None, directory: Path, mirrored: Mapping[str, str]) -> DeclaredMirror | None:
    if declared is None:
        return None
    return DeclaredMirror(declared=declared, config=str(directory / declared.config), topics=mirrored)


def _shows(declaration: ClusterDeclaration) -> bool:
    return declaration.undeclared_topics is not Undeclared.IGNORE


def _chosen(declaration: ClusterDeclaration, topic: str) -> TableDeclaration | None:
    fitting = [table for table in declaration.tables if table.fits(topic)]
    return min(fitting, key=lambda table: table.topic is None, default=None)


def _location(topic: str, declared: TableDeclaration, cluster: ClusterDeclaration) -> str:
    if cluster.format_of(declared) is Format.DELTA and format_of(declared.table or "") is Format.DELTA:
        return (declared.table or TOPIC).replace(TOPIC, topic)
    name = (declared.table or f"{cluster.cluster}.{TOPIC}").replace(TOPIC, _identifier(topic))
    return address_in(declared.catalog or cluster.catalog or "", name)


def outputs_place(declaration: ClusterDeclaration) -> str | None:
    """Returns below what downstream jobs have their tables: the warehouse, if one is declared, or a namespace."""
    if declaration.format is Format.DELTA:
        return declaration.warehouse
    return address_in(declaration.catalog or "", declaration.cluster, is_table=False)


def _schema(topic: str, declared: TableDeclaration, directory: Path, schema_dir: str) -> str | None:
    if declared.schema_file is not None:
        return str(directory / declared.schema_file.replace(TOPIC, topic))
    path = Path(schema_dir, f"{topic}.json")
    return str(path) if schema_dir and path.is_file() else None


def default_group(topic: str) -> str:
    """Returns the beginning of a topic's name, up to the first `.`, `-` or `_`, so that related topics lie together."""
    beginning = next(part for part in [*GROUP_END.split(topic), topic] if part)
    return NO_GROUP_CHARACTERS.sub("_", beginning).lower()
