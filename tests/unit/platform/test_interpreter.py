"""Which interpreters Millrace is imported by."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("abiflags", "is_taken"), [("", True), ("d", True), ("t", False), ("td", False)])
def test_free_threaded_builds_are_refused(abiflags: str, *, is_taken: bool) -> None:
    program = f"import sys; sys.abiflags = {abiflags!r}; import millrace"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (imported.returncode == 0) is is_taken
    assert is_taken or "install the build with the GIL" in imported.stderr
