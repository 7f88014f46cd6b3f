"""Loads of topics into warehouse tables with Spark, and their place in Dagster (`MillraceComponent`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace_pipelines.definitions import MillraceComponent

__all__ = ["MillraceComponent"]


def __getattr__(name: str) -> object:
    """Returns `MillraceComponent`, imported only when it is asked for; raises AttributeError for any other name."""
    if name == "MillraceComponent":
        from millrace_pipelines.definitions import MillraceComponent  # noqa: PLC0415  Dagster takes a second to import

        return MillraceComponent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the names in this package, with `MillraceComponent`, which `__getattr__` imports."""
    return sorted([*globals(), *__all__])
