"""Lays the pages out below a folder, has Zensical make the site of them, and looks at what came out.

FOLDER/zensical.toml    what Zensical is told
FOLDER/pages            the pages, with their links as they are on the site
FOLDER/site             the site, to be read by a browser from the disk or from any web server
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from millrace_tools.docs_site.links import faults
from millrace_tools.docs_site.pages import DocsError, on_the_site, page_of, project_files

HERE = Path(__file__).parent
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def build(root: Path, folder: Path) -> Path:
    """Builds the site of the project at `root` below `folder`, and returns the folder of the site.

    Raises:
        DocsError: A link leads nowhere, Zensical warns of something, or a page would load something from elsewhere.
    """
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(root, folder / "pages")
    settings = (HERE / "zensical.toml").read_text(encoding="utf-8").replace("PROJECT", str(root.resolve()))
    (folder / "zensical.toml").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DocsError(COLOURS.sub("", done.stdout + done.stderr.partition("Traceback")[0]).strip())
    if wrong := list(faults(folder / "site")):
        raise DocsError("\n".join(wrong))
    return folder / "site"


def lay_out(root: Path, folder: Path) -> None:
    """Writes the pages and pictures of the project into a folder."""
    files = project_files(root)
    for name in files:
        page = page_of(name)
        if page is None:
            continue
        place = folder / page
        place.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            place.write_text(on_the_site((root / name).read_text(encoding="utf-8"), name, files), encoding="utf-8")
        else:
            shutil.copyfile(root / name, place)
    (folder / "assets").mkdir()
    shutil.copyfile(HERE / "iframe-worker.js", folder / "assets" / "iframe-worker.js")
