"""A plugin of pytest: `--proof`, which `make test` gives, runs what `tests/proof.txt` names; without it all tests run.

Each line of that page is a folder, a file or a test beside it, and what it proves. Paths of the command line run
instead. A test marked `soak` has a fifth of its rounds there (tests/conftest.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = Path("tests", "proof.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.addoption("--proof", action="store_true", help=f"what {PAGE} names, and less of what is marked `soak`")


def pytest_configure(config: pytest.Config) -> None:
    """Takes the page's paths where the command line names none."""
    if config.getoption("--proof") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(path) for path in proof(config.rootpath)]


def proof(root: Path) -> list[Path]:
    """Returns the folders, files and tests that the page of a tree names."""
    lines = (root / PAGE).read_text(encoding="utf-8").splitlines()
    words = [line.split("#", 1)[0].split() for line in lines]
    return [root / PAGE.parent / first for first, *_ in filter(None, words)]
