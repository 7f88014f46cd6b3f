"""What a command lacks: a person at a terminal is asked and pip installs it, a script gets the command as an error."""

import contextlib
import os
import pty
import subprocess
import sys
from zipfile import ZipFile

import pytest

from millrace.extras import PACKAGES
from millrace_ops.cli.installing import SIZES_MB

TIMEOUT_S = 240
METADATA = "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
PROGRAM = """
import sys

from millrace import extras
from millrace.errors import SetupError
from millrace_ops.cli import installing

wheel, site = sys.argv[1:]
sys.path.append(site)
extras.PACKAGES = {**extras.PACKAGES, "tiny": ("tiny_package",)}
installing.requirement = lambda *_: wheel  # what a registry would have
try:
    installing.ensure("the command", "tiny")
except SetupError as error:
    print(error)
else:
    import tiny_package

    print(tiny_package.__file__)
"""
ASKED = "the command needs the extra 'tiny', up to 0 MB. Install it now?"
COMMAND = "pip install 'millrace-log[{}]'".format("tiny")
TOLD = f"the command needs the extra 'tiny': {COMMAND}\n"


@pytest.fixture
def run(tmp_path):
    """Runs the program, with the answer that is typed at its terminal; without an answer it has no terminal."""
    wheel, site = tmp_path / "tiny_package-1.0-py3-none-any.whl", tmp_path / "site"
    with ZipFile(wheel, "w") as made:
        made.writestr("tiny_package/__init__.py", "")
        for name, text in (("METADATA", METADATA), ("WHEEL", WHEEL), ("RECORD", "")):
            made.writestr(f"tiny_package-1.0.dist-info/{name}", text)
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_TARGET": str(site)}

    def program(answer, package=wheel):
        command = [sys.executable, "-c", PROGRAM, str(package), str(site)]
        if answer is None:
            done = subprocess.run(
                command, env=environment, stdin=-3, capture_output=True, timeout=TIMEOUT_S, check=False
            )
            return done.stdout.decode(), done.stderr.decode()
        master, terminal = pty.openpty()
        with subprocess.Popen(command, env=environment, stdin=terminal, stdout=-1, stderr=terminal) as process:
            os.close(terminal)
            os.write(master, f"{answer}\n".encode())
            shown = all_of(master)
            return process.stdout.read().decode(), shown

    return program


def all_of(master):
    """Returns what programs write to a terminal until the last of them has closed it; Linux tells that by an error."""
    found = b""
    with contextlib.suppress(OSError):
        while part := os.read(master, 100_000):
            found += part
    os.close(master)
    return found.decode()


def test_a_script_gets_the_command_and_is_not_asked(run):
    assert run(None) == (TOLD, "")


@pytest.mark.parametrize("answer", ["n", ""])
def test_a_person_may_refuse(run, answer):
    output, shown = run(answer)
    assert (output, ASKED in shown) == (TOLD, True)


def test_a_person_who_agrees_goes_on_at_once(run, tmp_path):
    output, shown = run("y")
    assert output == f"{tmp_path}/site/tiny_package/__init__.py\n"
    assert ASKED in shown
    assert "Successfully installed tiny-package-1.0" in shown


def test_what_pip_cannot_install_is_told_with_the_command(run, tmp_path):
    output, shown = run("y", package=tmp_path / "absent-1.0-py3-none-any.whl")
    assert output == f"pip did not install the extra 'tiny': {COMMAND} says why\n"
    assert "absent-1.0-py3-none-any.whl" in shown


def test_each_extra_that_a_command_needs_has_a_size():
    assert SIZES_MB.keys() <= PACKAGES.keys()
    assert {"broker", "tables", "spark", "dagster", "pipelines", "query", "demo"} == SIZES_MB.keys()
