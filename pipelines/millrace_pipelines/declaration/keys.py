"""The asset keys of a cluster: `CLUSTER/KIND/NAME`, where KIND is topic, table, dead_letters or reload.

Dagster derives identifiers from keys, in which `.`, `-` and `_` are the same. Where the names of topics differ in these
characters alone, each key's name ends with a checksum of the topic's name, so that all of them can be loaded.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import dagster as dg


class AssetKeys(NamedTuple):
    """The keys of the assets of one topic."""

    topic: dg.AssetKey
    table: dg.AssetKey
    dead_letters: dg.AssetKey
    reload: dg.AssetKey


def asset_keys(cluster: str, topics: Iterable[str]) -> Mapping[str, AssetKeys]:
    """Returns the asset keys of each topic."""
    names = list(topics)
    same = Counter(map(_identifier, names))
    return {
        name: _keys(cluster, name if same[_identifier(name)] == 1 else f"{name}_{zlib.crc32(name.encode()):08x}")
        for name in names
    }


def _identifier(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _keys(cluster: str, name: str) -> AssetKeys:
    return AssetKeys(*(dg.AssetKey([cluster, kind, name]) for kind in AssetKeys._fields))
