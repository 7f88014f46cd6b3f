"""The tests of `make unit` pass where nothing is installed but its extra, which has neither Spark nor Dagster."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = re.search(r"^UNIT := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
PLUGINS = ("-p", "pytest_timeout", "-p", "millrace_support.light_environment")


def run(*arguments, code=None):
    """The exit status of pytest, or of code, and what was printed."""
    search = os.pathsep.join([str(ROOT / "tests" / "support"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *(("-c", code) if code else ("-m", "pytest", *PLUGINS, "-q", *arguments))],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("folder", FOLDERS)
def test_unit_tests_pass_without_spark_and_dagster(folder):
    status, printed = run(folder)
    assert status == 0, printed[-5000:]


@pytest.mark.parametrize("package", ["pyspark", "dagster", "py4j", "pandas"])
def test_what_is_not_in_the_extra_is_hidden(package):
    status, printed = run(code=f"import millrace_support.light_environment, {package}")
    assert (status, "it is not in the extra unit" in printed) == (1, True), printed
