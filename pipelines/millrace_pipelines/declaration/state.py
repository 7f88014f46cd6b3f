"""What definitions are made of beside their declarations, as it was when it was last looked at: the component's state.

    {"version": 1, "topics": ["flights", "orders-eu"], "environment": {"schema_dir": "/srv/schemas", …}}

With it, definitions load without a broker, and are the same in each process, whatever its environment is. Internal
topics are left out. A file that can't be read counts as one that says nothing: the next look writes it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace.client import Cluster
from millrace.internal_topics import INTERNAL_TOPICS

VERSION = 1
SCHEMA_DIR = "MILLRACE_SCHEMA_DIR"
ZOOKEEPER = "MILLRACE_ZOOKEEPER"
WEBHOOK = "MILLRACE_WEBHOOK"


class Environment(NamedTuple):
    """What the environment adds to the declarations.

    Attributes:
        schema_dir: The folder of schemas TOPIC.json, for topics whose declaration names none; "" for none.
        has_zookeeper: Whether it names a ZooKeeper, so that there may be groups in it.
        has_webhook: Whether it names a webhook, whose address may be a secret.
    """

    schema_dir: str = ""
    has_zookeeper: bool = False
    has_webhook: bool = False


class State(NamedTuple):
    """The topics that the cluster had when it was last asked, and what the environment added then."""

    topics: frozenset[str] = frozenset()
    environment: Environment = Environment()


def environment_of(variables: Mapping[str, str]) -> Environment:
    """Returns what an environment adds."""
    return Environment(variables.get(SCHEMA_DIR, ""), bool(variables.get(ZOOKEEPER)), bool(variables.get(WEBHOOK)))


def topics_there(cluster: Cluster) -> frozenset[str]:
    """Returns the names of a cluster's topics; raises the errors of `millrace.client`."""
    return frozenset(cluster.metadata(None).topics.keys() - INTERNAL_TOPICS)


def write_state(path: Path, state: State) -> None:
    """Writes the state, so that a reader sees the old file or the new one; raises OSError where that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    content = {"version": VERSION, "topics": sorted(state.topics), "environment": state.environment._asdict()}
    written.write_text(json.dumps(content), encoding="utf-8")
    written.replace(path)


def read_state(path: Path | None) -> State:
    """Returns the state of a file; an empty one where there is no such file, or it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return State()
    if not isinstance(content, dict) or content.get("version") != VERSION:
        return State()
    return State(_topics(content.get("topics")), _environment(content.get("environment")))


def _topics(names: object) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _environment(fields: object) -> Environment:
    match fields:
        case {"schema_dir": str(schemas), "has_zookeeper": bool(zookeeper), "has_webhook": bool(webhook)}:
            return Environment(schemas, zookeeper, webhook)
    return Environment()


def write_topics(path: Path, topics: Iterable[str]) -> None:
    """Writes the topics, and leaves the rest of the state as it is."""
    write_state(path, read_state(path)._replace(topics=frozenset(topics)))
