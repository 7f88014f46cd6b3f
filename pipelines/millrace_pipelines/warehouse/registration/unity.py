"""Entries of Delta tables in Unity Catalog, by its API of version 2.1; its token is in UNITY_CATALOG_TOKEN.

The API has no request that changes a table's columns: an entry with others is removed and made again.
"""

from __future__ import annotations

import os
from http import HTTPStatus

import httpx

from millrace_pipelines.warehouse.registration.entry import Entry

TOKEN = "UNITY_CATALOG_TOKEN"  # noqa: S105  # the name of a variable
API = "/api/2.1/unity-catalog"
TIMEOUT_S = 30.0
NAMES = {
    "boolean": "BOOLEAN", "tinyint": "BYTE", "smallint": "SHORT", "int": "INT", "bigint": "LONG", "float": "FLOAT",
    "double": "DOUBLE", "string": "STRING", "binary": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP",
    "decimal": "DECIMAL", "array": "ARRAY", "map": "MAP", "struct": "STRUCT",
}  # fmt: skip


class UnityEntries:
    """The entry of one name in Unity Catalog.

    Args:
        url: The server's address.
        catalog: The catalog, which has to be there, as has the schema.
        schema: The schema.
        name: The table's name.
    """

    def __init__(self, url: str, catalog: str, schema: str, name: str) -> None:
        token = os.environ.get(TOKEN)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url.rstrip("/") + API, headers=headers, timeout=TIMEOUT_S)
        self._names = {"catalog_name": catalog, "schema_name": schema, "name": name}
        self._full_name = f"{catalog}.{schema}.{name}"

    def find(self) -> Entry | None:
        """Returns the entry of the name; None where there is none."""
        answer = self._http.get(f"/tables/{self._full_name}")
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        table = answer.raise_for_status().json()
        columns = tuple((one["name"], one["type_text"]) for one in table.get("columns", ()))
        return Entry(table["storage_location"], columns)

    def put(self, entry: Entry, before: Entry | None) -> None:
        """Makes the entry, again where there was one with other columns before."""
        if before is not None:
            self._http.delete(f"/tables/{self._full_name}").raise_for_status()
        table = {
            **self._names,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "storage_location": entry.location,
            "columns": [
                {
                    "name": name,
                    "type_text": kind,
                    "type_name": NAMES[kind.partition("<")[0].partition("(")[0]],
                    "type_json": f'"{kind}"',
                    "position": position,
                    "nullable": True,
                }
                for position, (name, kind) in enumerate(entry.columns)
            ],
        }
        self._http.post("/tables", json=table).raise_for_status()
