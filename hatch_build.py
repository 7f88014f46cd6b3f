"""Makes the types of messages and compiles the record kernel while the package is built, also for `pip install -e`.

ops/millrace_tools/message_types.py makes the types, from the schemas of kio, which is a requirement of the build.

Where the kernel can't be compiled (no C compiler, no Python.h) the package is built all the same, without it: a line
says so, and Python does its work. platform/millrace/kernel/build.py does the compiling. The variable MILLRACE_NO_KERNEL
leaves the kernel out of a wheel, which then fits every machine.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MESSAGE_TYPES = "millrace_tools.message_types"
MADE = ("/platform/millrace/wire/messages/*.py", "/platform/millrace/wire/absent_fields.py")
BUILD = "platform/millrace/kernel/build.py"


class MadePartsHook(BuildHookInterface):
    """Adds what is made to a wheel, and leaves it beside its sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Makes the types, then the kernel, with which the wheel fits this platform only."""
        self._make_message_types()
        build_data["artifacts"] += MADE
        if version == "editable" or not os.environ.get("MILLRACE_NO_KERNEL"):
            self._compile_kernel(version, build_data)

    def _make_message_types(self) -> None:
        """Runs their maker, in a process that finds the sources beside what the build requires.

        Not by PYTHONPATH: pip's environment of a build drops what an editable install in the same environment has.
        """
        sources = [str(Path(self.root, name)) for name in ("platform", "ops")]
        program = f"import runpy, sys; sys.path[:0] = {sources}; runpy.run_module({MESSAGE_TYPES!r}, None, '__main__')"
        subprocess.run([sys.executable, "-P", "-c", program], env={**os.environ, "MILLRACE_NO_KERNEL": "1"}, check=True)

    def _compile_kernel(self, version: str, build_data: dict[str, Any]) -> None:
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
