"""`python -m millrace_tools.docs_site [FOLDER]`: builds the site of the project in the working directory."""

from __future__ import annotations

import sys
from pathlib import Path

from millrace_tools.docs_site.build import build
from millrace_tools.docs_site.pages import DocsError

DEFAULT = "build/docs"


def main(folder: str = DEFAULT) -> int:
    """Builds the site, says where it is, and returns the exit status."""
    try:
        site = build(Path.cwd(), Path(folder))
    except DocsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(f"{site / 'index.html'} is the first page")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
