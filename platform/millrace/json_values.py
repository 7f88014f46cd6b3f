"""JSON as Python holds it: what `json.loads` returns and `json.dumps` takes."""

from __future__ import annotations

from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
