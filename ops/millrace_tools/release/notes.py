"""The notes of a release: the section of its version in the changelog (Keep a Changelog 1.1.0).

    python -m millrace_tools.release.notes CHANGELOG.md > dist/release-notes.md

The package's version must have a section with a date, so nothing is released that the changelog does not describe.
Before the release the section is called Unreleased, and `--unreleased` takes it, to try a release.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from millrace import __version__
from millrace.errors import MillraceError, SetupError

HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?\s*$", re.MULTILINE)
UNRELEASED = "Unreleased"


def notes_of(version: str, changelog: str) -> str:
    """Returns what the changelog says of a version; raises SetupError where that is nothing, or lacks its date."""
    headings = list(HEADING.finditer(changelog))
    for one, following in zip(headings, [*headings[1:], None], strict=True):
        if one["version"] == version:
            text = changelog[one.end() : None if following is None else following.start()].strip()
            if not text:
                raise SetupError(f"the section [{version}] of the changelog is empty")
            if one["date"] is None and version != UNRELEASED:
                raise SetupError(f"the section [{version}] of the changelog has no date: ## [{version}] - YYYY-MM-DD")
            return f"{text}\n"
    found = ", ".join(f"[{one['version']}]" for one in headings) or "none"
    raise SetupError(f"the changelog has no section [{version}]; it has {found}")


def main(arguments: Sequence[str]) -> int:
    """Prints the notes of this version from the changelog that the first argument names; returns the exit status."""
    file, *options = arguments
    version = UNRELEASED if "--unreleased" in options else __version__
    try:
        text = notes_of(version, Path(file).read_text(encoding="utf-8"))
    except MillraceError as error:
        print(f"{file}: {error}", file=sys.stderr)  # noqa: T201  # a program's answer
        return 1
    print(text, end="")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
