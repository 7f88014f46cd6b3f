"""The names of tables in SQL, of which each means one table: DuckDB knows no upper and lower case of ASCII's letters.

    /lake/orders              orders                     its folder's name, where no other table has it in any case
    /lake/eu/sales            "eu/sales"                 its path below the folder that is queried, where another
    /lake/us/sales            "us/sales"                 table has the name of its folder
    /lake/Events              "Events_8d14f6e7"          with a checksum of the path, where paths differ in case alone
    /lake/events              "events_862417b9"

A name that could mean several tables means none of them, and what it could mean is said. Which other tables there are
changes no name with a path or a checksum that is unique by itself: both follow from the table's own path.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace_pipelines.warehouse.errors import QueryError


class SqlNames(NamedTuple):
    """The name of each table by its location, and a sentence for each name that could mean several tables."""

    by_location: Mapping[str, str]
    refused: Mapping[str, str]


def sql_names(root: str, locations: Iterable[str]) -> SqlNames:
    """Returns the names of the tables in or below a folder or a bucket.

    Args:
        root: The folder that is queried.
        locations: Where its tables are.
    """
    paths = {one: one.removeprefix(root.rstrip("/")).strip("/") or os.path.basename(one) for one in locations}
    named = {one: [os.path.basename(one), paths[one], _with_checksum(paths[one])] for one in paths}
    counts = Counter(folded for names in named.values() for folded in {*map(_folded, names)})
    chosen = {one: _chosen(one, [name for name in names if counts[_folded(name)] == 1]) for one, names in named.items()}
    meant: dict[str, list[str]] = {}
    for one, names in named.items():
        for folded in {*map(_folded, names)}:
            meant.setdefault(folded, []).append(one)
    return SqlNames(chosen, {name: _sentence(name, ones, chosen) for name, ones in meant.items() if len(ones) > 1})


def _chosen(location: str, free: list[str]) -> str:
    if not free:
        raise QueryError(f"{location} has no name in SQL that no other table has; query this table alone")
    return free[0]


def _folded(name: str) -> str:
    """Returns the name as DuckDB compares it."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _with_checksum(path: str) -> str:
    return f"{path}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _sentence(name: str, locations: Iterable[str], chosen: Mapping[str, str]) -> str:
    choices = " and ".join(f'"{chosen[one]}" for {one}' for one in locations)
    return f"{name} could be several tables, for SQL knows no upper and lower case; write {choices}"
