"""Loads of topics into warehouse tables with Spark, and their place in Dagster (`MillraceComponent`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace_pipelines.definitions import MillraceComponent

__all__ = ["MillraceComponent"]


def __getattr__(name: str) -> object:
    """Returns the component, which a load without Dagster has no use for, when it is first asked for."""
    if name == "MillraceComponent":
        from millrace_pipelines.definitions import MillraceComponent  # noqa: PLC0415  Dagster takes a second to import

        return MillraceComponent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the names of the package, the component among them."""
    return sorted([*globals(), *__all__])
