"""The notes of a release are the section of its version in the changelog."""

import re
from pathlib import Path

import pytest

from millrace import __version__
from millrace.errors import SetupError
from millrace_tools.release.notes import HEADING, UNRELEASED, main, notes_of

CHANGELOG = Path(__file__).parents[5] / "CHANGELOG.md"
TEXT = """# Changelog

## [Unreleased]

### Added
- More [links](docs/x.md).

## [0.2.0] - 2026-05-01
### Fixed
- A fault.

## [0.1.1] - 2026-04-01

## [0.1.0]
- The first.
"""


@pytest.mark.parametrize(
    ("version", "notes"),
    [("Unreleased", "### Added\n- More [links](docs/x.md).\n"), ("0.2.0", "### Fixed\n- A fault.\n")],
)
def test_they_are_all_that_stands_below_the_heading(version, notes):
    assert notes_of(version, TEXT) == notes


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.1.1", "is empty"),
        ("0.1.0", "has no date"),
        ("0.3.0", r"no section \[0.3.0\]; it has \[Unreleased\], \[0.2.0\]"),
    ],
)
def test_a_version_without_them_is_not_released(version, reason):
    with pytest.raises(SetupError, match=reason):
        notes_of(version, TEXT)


def test_the_program_prints_them_or_says_why_not(tmp_path, capsys):
    file = tmp_path / "CHANGELOG.md"
    file.write_text(TEXT.replace("0.2.0", __version__ + ".1"))
    assert main([str(file), "--unreleased"]) == 0
    assert capsys.readouterr() == ("### Added\n- More [links](docs/x.md).\n", "")
    assert main([str(file)]) == 1
    assert re.search(r"CHANGELOG.md: the section|has no date", capsys.readouterr().err)


def test_our_changelog_is_of_this_form():
    text = CHANGELOG.read_text(encoding="utf-8")
    versions = [one["version"] for one in HEADING.finditer(text)]
    assert versions[:2] == [UNRELEASED, __version__]
    assert len(versions) == len(re.findall("^## ", text, re.MULTILINE))
    assert notes_of(__version__, text)
    assert [line for line in text.splitlines() if len(line) > 120] == []
