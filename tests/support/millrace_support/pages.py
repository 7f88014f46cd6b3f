"""The blocks of code in the project's pages: each with its page, line and language, and the heading it is below."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FILE_NAME = re.compile(r"`([\w-]+\.\w+)`[^`]*:\s*\Z")
"""How a page names the file that a block is: "save it as `orders.json`:"."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `file` is the name that the sentence before it gives it."""

    page: str
    line: int
    language: str
    heading: str
    text: str
    file: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in FENCE.finditer(text)]


def block(page: str, language: str, having: str) -> str:
    """Returns the text of the one block of a page that is in a language and has a text."""
    [found] = [one.text for one in blocks(ROOT / page) if one.language == language and having in one.text]
    return found


def commands(shown: Block) -> Iterator[tuple[str, str]]:
    """Yields the commands of a block of the console, and what each prints."""
    for part in re.split(r"^\$ ", shown.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    before = text[: found.start()]
    headings = HEADING.findall(FENCE.sub("", before))
    named = FILE_NAME.search(before.rpartition("\n\n")[0].rpartition("\n\n")[2])
    return Block(
        page=str(page.relative_to(ROOT)),
        line=before.count("\n") + 1,
        language=found["language"].strip(),
        heading=headings[-1] if headings else "",
        text=re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
        file=named[1] if named else None,
    )
