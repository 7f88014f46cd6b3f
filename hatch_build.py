"""Compiles the record kernel while the package is built, also for `pip install -e`.

Where that can't be done (no C compiler, no Python.h) the package is built all the same, without the kernel: a line says
so, and Python does its work. platform/millrace/kernel/build.py does the compiling. The variable MILLRACE_NO_KERNEL
leaves the kernel out of a wheel, which then fits every machine.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD = "platform/millrace/kernel/build.py"


class KernelBuildHook(BuildHookInterface):
    """Adds the compiled kernel to a wheel, and leaves it beside its sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the kernel; the wheel then fits this platform only."""
        if version != "editable" and os.environ.get("MILLRACE_NO_KERNEL"):
            return
        build = _module(Path(self.root, BUILD))
        try:
            native = build.build()
        except build.NoCompilerError as error:
            self.app.display_warning(f"The record kernel is not compiled, Python does its work: {error}")
            return
        build_data["pure_python"] = False
        if build.is_stable():
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"
        else:
            build_data["infer_tag"] = True
        if version != "editable":
            build_data["artifacts"].append(f"/{native.relative_to(self.root)}")


def _module(path: Path) -> Any:
    """Returns the module of a file whose package can't be imported yet."""
    spec = importlib.util.spec_from_file_location("kernel_build", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
