"""The topics that a cluster had when it was last asked: the component's state, with which definitions need no broker.

    {"version": 1, "topics": ["flights", "orders-eu"]}

Internal topics are left out. A file that can't be read counts as one without topics: the next look writes it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from millrace.client import Cluster
from millrace.internal_topics import INTERNAL_TOPICS

VERSION = 1


def topics_there(cluster: Cluster) -> frozenset[str]:
    """Returns the names of a cluster's topics; raises the errors of `millrace.client`."""
    return frozenset(cluster.metadata(None).topics.keys() - INTERNAL_TOPICS)


def write_topics(path: Path, topics: Iterable[str]) -> None:
    """Writes the topics, so that a reader sees the old file or the new one; raises OSError where that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    written.write_text(json.dumps({"version": VERSION, "topics": sorted(topics)}), encoding="utf-8")
    written.replace(path)


def read_topics(path: Path | None) -> frozenset[str]:
    """Returns the topics of the file; none where there is no such file, or it holds something else."""
    try:
        state = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return frozenset()
    topics = state.get("topics") if isinstance(state, dict) and state.get("version") == VERSION else None
    return frozenset(name for name in topics if isinstance(name, str)) if isinstance(topics, list) else frozenset()
