"""The distribution is called millrace-log; what is imported and typed stays millrace."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from trove_classifiers import classifiers

from millrace.extras import DISTRIBUTION

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
OTHERS_NAME = re.compile(r"pip install (-\S+ )*['\"]?millrace(?!-log)|\bmillrace\[(?!-)[a-z,]+\]")
INSTALLED = re.compile(r"\bpip install '?([A-Za-z][\w.-]*)")
EXTRAS = re.compile(r"millrace-log\[([\w,-]+)\]")
FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
TEXTS = [name for name in FILES if name.endswith((".py", ".md", ".toml", ".yaml", ".txt")) or name == "Makefile"]


def test_the_distribution_goes_by_its_own_name():
    assert PROJECT["name"] == DISTRIBUTION == "millrace-log"
    assert PROJECT["scripts"] == {"millrace": "millrace_ops.cli.main:main"}


@pytest.mark.skipif(not TEXTS, reason="no checkout of git")
def test_nothing_tells_anybody_to_install_the_package_of_somebody_else():
    found = [name for name in TEXTS if OTHERS_NAME.search((ROOT / name).read_text(encoding="utf-8", errors="replace"))]
    assert found == []


def texts_with(pattern):
    found = ((name, pattern.findall((ROOT / name).read_text(encoding="utf-8", errors="replace"))) for name in TEXTS)
    return {(name, match) for name, matches in found for match in matches}


def test_what_texts_say_to_install_is_ours_or_what_we_depend_on():
    requirements = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    names = {re.match(r"[\w-]+", one)[0] for one in requirements} | {"pre-commit"}
    assert {(name, package) for name, package in texts_with(INSTALLED) if package not in names} == set()


def test_extras_that_texts_name_are_there():
    known = {*PROJECT["optional-dependencies"]}
    assert {(name, extras) for name, extras in texts_with(EXTRAS) if not {*extras.split(",")} <= known} == set()


def test_the_readme_says_in_its_third_line_how_it_is_installed():
    third = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[2]
    assert third.startswith(f"`pip install '{DISTRIBUTION}[all]'` installs")


def test_the_schemas_that_types_are_made_of_are_those_that_are_tested():
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {*constraints} >= {one for one in PYPROJECT["build-system"]["requires"] if one.startswith("kio")}


def test_classifiers_are_those_of_the_registry():
    assert set(PROJECT["classifiers"]) <= classifiers
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])
