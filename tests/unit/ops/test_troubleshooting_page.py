"""docs/troubleshooting.md quotes messages as the code has them."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
SOURCES = ("platform", "broker", "pipelines", "ops")
GAP = "…"
ROW = re.compile(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
MESSAGES = [message for message, _, _ in ROWS]


@cache
def texts():
    """All texts of the sources, each with `…` for what is filled in."""
    found = set()
    for root in SOURCES:
        for path in (ROOT / root).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    found.add("".join(one.value if isinstance(one, ast.Constant) else GAP for one in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_one_of_the_code(message):
    assert any(message in text for text in texts())


def test_each_row_is_a_message_with_its_meaning_and_a_way_out():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!message)", line)]
    assert len(rows) == len(ROWS) == len(set(MESSAGES)) > 40
