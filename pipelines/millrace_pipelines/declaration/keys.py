"""The asset keys of a topic: `CLUSTER/KIND/TOPIC`, where KIND is topic, table, dead_letters or reload.

A topic's keys follow from its name alone. What else the cluster has changes none of them, for with a key an asset would
lose its history, its checks and its alerts.

Dagster derives the names of a step's inputs and outputs from keys, and makes an `_` of each `.` and `-`. So that
`shop.orders` and `shop_orders` can be loaded by one step, a step is made for keys that stay apart in this
(`step_keys`), and is then given the assets' own keys (`under_own_keys`).

Earlier versions gave topics that differ in these characters alone other keys, which ended with a checksum of the
topic's name. `checksum_in_keys` of a declaration keeps them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import dagster as dg

MARKED = re.compile(r".*__[012]+", re.DOTALL)
MARKS = {"_": "0", ".": "1", "-": "2"}


class AssetKeys(NamedTuple):
    """The keys of the assets of one topic."""

    topic: dg.AssetKey
    table: dg.AssetKey
    dead_letters: dg.AssetKey
    reload: dg.AssetKey


def asset_keys(cluster: str, topic: str, *, with_checksum: bool = False) -> AssetKeys:
    """Returns the asset keys of a topic, which no other topic has."""
    # A topic's own name may end with the checksum of what stands before it: it gets one, too, and no two names meet.
    name = _with_checksum(topic) if with_checksum or topic == _with_checksum(topic.rpartition("_")[0]) else topic
    return AssetKeys(*(dg.AssetKey([cluster, kind, name]) for kind in AssetKeys._fields))


def step_keys(keys: AssetKeys) -> AssetKeys:
    """Returns keys for the step that makes these assets, of which Dagster derives names that no other topic's have."""
    return AssetKeys(*map(step_key, keys))


def step_key(key: dg.AssetKey) -> dg.AssetKey:
    """Returns a key of which Dagster derives a name that it derives of no other topic's."""
    return dg.AssetKey([*key.path[:-1], _identifier(key.path[-1])])


def marks_of(topic: str) -> str:
    """Returns a digit for each `_`, `.` and `-` of a topic's name; nothing for most names that have only `_`.

    With it, a name in which these are all `_` stands for one topic.
    """
    is_apart = not re.search(r"[.-]", topic) and not MARKED.fullmatch(topic)
    return "" if is_apart else "".join(MARKS[one] for one in topic if one in MARKS)


def under_own_keys(step: dg.AssetsDefinition, keys: Iterable[dg.AssetKey]) -> dg.AssetsDefinition:
    """Returns a step that was made for `step_key` of each of these keys as the step of the keys themselves."""
    return step.with_attributes(asset_key_replacements={step_key(key): key for key in keys})


def _with_checksum(name: str) -> str:
    return f"{name}_{zlib.crc32(name.encode()):08x}"


def _identifier(name: str) -> str:
    return f"{re.sub(r'[.-]', '_', name)}__{marks}" if (marks := marks_of(name)) else name
