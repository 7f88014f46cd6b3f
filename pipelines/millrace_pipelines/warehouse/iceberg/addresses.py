"""The addresses of Iceberg tables.

    iceberg:NAMESPACE.NAME                    of the catalog that PyIceberg takes where none is named
    iceberg:CATALOG/NAMESPACE.NAME            of a catalog, as PyIceberg's configuration names it
    iceberg:/srv/warehouse/NAMESPACE.NAME     of the embedded catalog of a folder (`catalogs`)

A namespace may have several levels, with dots between them. What has many tables is named in the same way:

    iceberg:CATALOG/               all of a catalog
    iceberg:CATALOG/NAMESPACE      a namespace, and those in it
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from millrace_pipelines.warehouse.errors import AddressError

PREFIX = "iceberg:"
FORMS = "iceberg:NAMESPACE.NAME, iceberg:CATALOG/NAMESPACE.NAME or iceberg:/FOLDER/NAMESPACE.NAME"
PART = re.compile(r"[\w-]+")
FOLDER = re.compile(r"[^?#%:]+")


class IcebergAddress(NamedTuple):
    """A table in a catalog; `folder` is that of an embedded catalog, "" for another one, whose name is in `catalog`."""

    catalog: str
    folder: str
    parts: tuple[str, ...]

    @property
    def namespace(self) -> tuple[str, ...]:
        """Returns the parts of the namespace."""
        return self.parts[:-1]

    def __str__(self) -> str:
        place = self.folder or self.catalog
        return f"{PREFIX}{place}{'/' if place else ''}{'.'.join(self.parts)}"


class IcebergPlace(NamedTuple):
    """A catalog, as `IcebergAddress` has it, or a namespace in one; without parts all of the catalog."""

    catalog: str
    folder: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        place = self.folder or self.catalog
        return f"{PREFIX}{place}{'/' if place else ''}{'.'.join(self.parts)}"

    def table(self, identifier: tuple[str, ...]) -> IcebergAddress:
        """Returns the address of a table in the catalog."""
        return IcebergAddress(self.catalog, self.folder, identifier)


def is_iceberg(address: str) -> bool:
    """Returns whether an address is that of an Iceberg table."""
    return address.startswith(PREFIX)


def parse_address(address: str) -> IcebergAddress:
    """Returns what an address names; raises AddressError where it names no table in a catalog."""
    place = parse_place(address)
    if len(place.parts) < 2:
        raise AddressError(f"{address}: an Iceberg table is {FORMS}; names have letters, digits, - and _")
    return place.table(place.parts)


def parse_place(address: str) -> IcebergPlace:
    """Returns the catalog, or the namespace or table in it, that an address names; raises AddressError for others."""
    place, slash, name = address.removeprefix(PREFIX).rpartition("/")
    parts = tuple(name.split(".")) if name else ()
    if not all(PART.fullmatch(part) for part in parts) or bool(slash) != bool(place):
        raise AddressError(f"{address}: an Iceberg table is {FORMS}; names have letters, digits, - and _")
    if not place.startswith(("/", ".", "~")):
        if place and not PART.fullmatch(place):
            raise AddressError(f"{address}: an Iceberg table is {FORMS}")
        return IcebergPlace(place, "", parts)
    folder = os.path.abspath(os.path.expanduser(place))
    if not FOLDER.fullmatch(folder):
        raise AddressError(f"{address}: a folder of Iceberg tables has no ?, #, % or : in its path")
    return IcebergPlace("", folder, parts)
