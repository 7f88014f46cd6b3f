"""A plugin of pytest, `-p millrace_support.light_environment`: what `make unit` does not install can't be imported."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
EXTRA = "unit"


class Hidden(MetaPathFinder):
    """Finds no module of packages, before others do.

    Args:
        packages: Their names.
    """

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Raises ModuleNotFoundError for a module of a hidden package."""
        if fullname.split(".", 1)[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {fullname!r}: it is not in the extra {EXTRA}", name=fullname)
        return None


def _hidden_packages() -> set[str]:
    kept: set[tuple[str, frozenset[str]]] = set()
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    for requirement in project["optional-dependencies"][EXTRA]:
        _add(Requirement(requirement), kept)
    names = {name for name, _ in kept}
    return {package for package, by in packages_distributions().items() if names.isdisjoint(map(_normal, by))}


def _add(requirement: Requirement, kept: set[tuple[str, frozenset[str]]]) -> None:
    """Adds what a requirement brings, as pip follows it: names of distributions, with their extras."""
    key = _normal(requirement.name), frozenset(requirement.extras)
    if key in kept:
        return
    kept.add(key)
    for needed in map(Requirement, distribution(requirement.name).requires or ()):
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
            _add(needed, kept)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


sys.meta_path.insert(0, Hidden(_hidden_packages()))
