"""Which file of the project becomes which page of the site, and where the links of a page lead there.

    README.md              index.md
    ARCHITECTURE.md        architecture.md, and so CHANGELOG.md
    docs/README.md         pages.md
    docs/NAME/README.md    NAME/index.md
    docs/NAME              NAME

The pages are written to be read in the repository. A link to a file that is no page, such as a unit of systemd, is only
its text on the site. A comment `<!-- api: NAME -->` stands for the reference of that name, made from its docstrings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from millrace.errors import MillraceError

FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
API = re.compile(r"^<!-- api: ([\w.]+) -->$", re.MULTILINE)
TOP = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}


class DocsError(MillraceError):
    """A page can't be laid out, Zensical has found a fault, or a link of the site leads nowhere."""


def page_of(path: str) -> str | None:
    """Returns the page or picture that a file becomes; None for a file that is not on the site."""
    if not path.startswith("docs/"):
        return TOP.get(path)
    name = path.removeprefix("docs/")
    folder, file = os.path.split(name)
    if file == "README.md":
        return f"{folder}/index.md" if folder else "pages.md"
    return name


def on_the_site(text: str, path: str, files: Iterable[str]) -> str:
    """Returns the text of a file with its links as they are on the site; `files` are those of the project.

    Raises:
        DocsError: A link leads to a file that the project does not have.
    """
    known = {*files}
    parts = FENCED.split(text)  # text, block, text, block, …
    parts[::2] = [LINK.sub(lambda link: _link(link, path, known), part) for part in parts[::2]]
    return API.sub(r"::: \1", "".join(parts))


def _link(link: re.Match[str], path: str, files: set[str]) -> str:
    mark, text, target = link.groups()
    file, hash_sign, anchor = target.partition("#")
    if not file or "://" in file or file.startswith("mailto:"):
        return link[0]
    found = os.path.normpath(os.path.join(os.path.dirname(path), file))
    found = f"{found}/README.md" if f"{found}/README.md" in files else found
    if found not in files and not any(one.startswith(f"{found}/") for one in files):
        raise DocsError(f"{path}: the link to {target} leads nowhere")
    page, here = page_of(found), page_of(path)
    if page is None or here is None:
        return text
    relative = os.path.relpath(page, os.path.dirname(here) or ".")
    return f"{mark}[{text}]({relative}{hash_sign}{anchor})"


def project_files(root: Path) -> list[str]:
    """Returns the files that pages may link to, by their paths in the project."""
    folders = [(root / folder).rglob("*") for folder in ("docs", "ops/deploy", "tests")]
    found = [*root.glob("*"), *(path for paths in folders for path in paths)]
    return sorted(str(path.relative_to(root)) for path in found if path.is_file())
