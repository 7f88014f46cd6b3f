"""The distribution is called millrace-log; what is imported and typed stays millrace."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from trove_classifiers import classifiers

from millrace.extras import DISTRIBUTION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHERS_NAME = re.compile(r"pip install (-\S+ )*['\"]?millrace(?!-log)|\bmillrace\[(?!-)[a-z,]+\]")
FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
TEXTS = [name for name in FILES if name.endswith((".py", ".md", ".toml", ".yaml", ".txt")) or name == "Makefile"]


def test_the_distribution_goes_by_its_own_name():
    assert PROJECT["name"] == DISTRIBUTION == "millrace-log"
    assert PROJECT["scripts"] == {"millrace": "millrace_ops.cli.main:main"}


@pytest.mark.skipif(not TEXTS, reason="no checkout of git")
def test_nothing_tells_anybody_to_install_the_package_of_somebody_else():
    found = [name for name in TEXTS if OTHERS_NAME.search((ROOT / name).read_text(encoding="utf-8", errors="replace"))]
    assert found == []


def test_classifiers_are_those_of_the_registry():
    assert set(PROJECT["classifiers"]) <= classifiers
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])
