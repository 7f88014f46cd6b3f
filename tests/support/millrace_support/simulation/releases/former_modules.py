"""Imports the former release a second time beside the present one, as `former.millrace`, `former.millrace_broker`.

    with_former = former_module("millrace_broker.storage")      the module `former.millrace_broker.storage`

Each of its modules is read from the former packages, and what it imports of `millrace` is `former.millrace`, also in
functions, later. Its errors are `MillraceError`s of the present release, too: whoever takes an error for expected need
not know of which release it is.

The support modules that wire a simulated broker are those of today, imported once more as `former.millrace_support`, so
that they wire former parts. What has no release is shared: the network, disks, clocks.

The record kernel is left out, since it knows the errors of one release only: Python does its work.
"""

from __future__ import annotations

import importlib
import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import millrace_support

PREFIX = "former"
IMPORTS = re.compile(
    r"""^(\s*(?:from|import)\ |.*\bimport_module\(")(millrace(?:_broker|_support)?\b)""", re.MULTILINE | re.VERBOSE
)
BASE_OF_ERRORS = "class MillraceError(Exception):"
SHARED_BASE = "from millrace.errors import MillraceError as _Present\n\n\nclass MillraceError(_Present):"
SHARED = (
    "millrace.zk.operations",
    "millrace_support.crash_fs",
    "millrace_support.held_worker",
    "millrace_support.simulation.group_members",
    "millrace_support.simulation.network",
    "millrace_support.simulation.simulated_losses",
    "millrace_support.simulation.swarm.settings",
    "millrace_support.simulation.virtual_time",
)


class _Loader(SourceFileLoader):
    """Loads a module whose imports are redirected, from its source: a compiled file beside it has the others."""

    def get_code(self, fullname: str) -> CodeType:
        """Returns the code of the module."""
        path = self.get_filename(fullname)
        source = IMPORTS.sub(rf"\1{PREFIX}.\2", self.get_data(path).decode())
        return compile(source.replace(BASE_OF_ERRORS, SHARED_BASE), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds modules whose names begin with `former`."""

    def __init__(self, packages: Path) -> None:
        support = Path(millrace_support.__path__[0]).parent
        self._folders = {"millrace": packages, "millrace_broker": packages, "millrace_support": support}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Returns where a module is; None where there is none."""
        prefix, _, name = fullname.partition(".")
        if prefix != PREFIX:
            return None
        top = name.partition(".")[0]
        if top not in self._folders:
            return ModuleSpec(fullname, None, is_package=True) if not name else None
        place = self._folders[top].joinpath(*name.split("."))
        for file, is_package in ((place / "__init__.py", True), (place.with_name(f"{place.name}.py"), False)):
            if file.is_file():
                spec = ModuleSpec(fullname, _Loader(fullname, str(file)), origin=str(file), is_package=is_package)
                spec.has_location = True
                return spec
        return ModuleSpec(fullname, None, is_package=True) if place.is_dir() else None


def install(packages: Path) -> None:
    """Lets the former packages be imported."""
    sys.meta_path.insert(0, _Finder(packages))
    for name in SHARED:
        sys.modules[f"{PREFIX}.{name}"] = importlib.import_module(name)


def former_module(name: str) -> Any:
    """Returns the former release's module of a name, or the support module that is wired with it."""
    return importlib.import_module(f"{PREFIX}.{name}")


def add_module(name: str) -> Any:
    """Returns a new, empty module of the former release, which it lacks."""
    module = sys.modules[f"{PREFIX}.{name}"] = ModuleType(f"{PREFIX}.{name}")
    parent, _, child = name.rpartition(".")
    setattr(former_module(parent), child, module)
    return module
