"""The names under which a Delta table is entered in the catalog of another engine.

    hive:thrift://HOST:PORT/DATABASE.TABLE             Hive's metastore
    glue:DATABASE.TABLE                                AWS Glue, by AWS's usual settings
    unity:https://HOST/CATALOG.SCHEMA.TABLE            Unity Catalog, with the token in UNITY_CATALOG_TOKEN

An entry is made where there is none, and gets the table's columns where it has others. A name that another table has is
left alone.
"""

from __future__ import annotations

import re

from millrace.extras import require
from millrace.fs import FileSystem
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Format
from millrace_pipelines.warehouse.errors import AddressError, RegistrationError
from millrace_pipelines.warehouse.formats import format_of, load_table
from millrace_pipelines.warehouse.registration.entry import Catalog, entry_of, errors_of, same_place

FORMS = "hive:thrift://HOST:PORT/DATABASE.TABLE, glue:DATABASE.TABLE or unity:https://HOST/CATALOG.SCHEMA.TABLE"
TARGET = re.compile(
    r"hive:(?P<hive>thrift://[^/\s]+)/(?P<hive_name>[\w-]+\.[\w-]+)"
    r"|glue:(?P<glue_name>[\w-]+\.[\w-]+)"
    r"|unity:(?P<unity>https?://[^\s]+)/(?P<unity_name>[\w-]+\.[\w-]+\.[\w-]+)"
)


def check_target(target: str, table: str) -> None:
    """Raises AddressError where a table can't be entered under such a name."""
    if TARGET.fullmatch(target) is None:
        raise AddressError(f"{target}: a table is entered in a catalog as {FORMS}")
    if format_of(table) is not Format.DELTA:
        raise AddressError(f"{table}: an Iceberg table is in its catalog by itself, and is entered in no other one")


def register(table: str, target: str, fs: FileSystem = DISK) -> bool:
    """Enters a Delta table in a catalog under a name; returns whether the entry had to be made or changed.

    Raises:
        AddressError: No entry can be meant.
        RegistrationError: The catalog can't be asked, or has another table of that name.
        TableNotFoundError: There is no table.
    """
    check_target(target, table)
    loaded = load_table(table, fs)
    entry = entry_of(loaded.location, loaded.schema)
    with errors_of(target):
        catalog = _catalog(target)
        before = catalog.find()
        if before is not None and not same_place(before.location, entry.location):
            raise RegistrationError(
                f"{target}: another table has this name, at {before.location}; choose another name, or drop that entry"
            )
        if before is not None and before.columns == entry.columns:
            return False
        catalog.put(entry, before)
    return True


def _catalog(target: str) -> Catalog:
    found = TARGET.fullmatch(target)
    assert found is not None  # as `check_target` has made sure
    if found["hive"]:
        require("an entry in Hive's metastore", "catalogs")
        from millrace_pipelines.warehouse.registration.hive import HiveEntries  # noqa: PLC0415  # few need Thrift

        return HiveEntries(found["hive"], *found["hive_name"].split("."))
    if found["glue_name"]:
        require("an entry in AWS Glue", "catalogs")
        from millrace_pipelines.warehouse.registration.glue import GlueEntries  # noqa: PLC0415  # few need boto3

        return GlueEntries(*found["glue_name"].split("."))
    from millrace_pipelines.warehouse.registration.unity import UnityEntries  # noqa: PLC0415  # few need HTTP

    return UnityEntries(found["unity"], *found["unity_name"].split("."))
