"""The house's rules that a linter does not know: lengths, docstrings that open a room, no shadowed modules."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("platform", "broker", "pipelines", "ops", "tests/support")
SOURCES = sorted(path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py"))
MADE = ROOT / "platform" / "millrace" / "wire" / "messages"  # by a program: short properties by the thousand
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MOSTLY_FILE_LINES = 160
MOSTLY_FUNCTION_LINES = 15


def name(path):
    return str(path.relative_to(ROOT))


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def length(function):
    return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_and_its_functions_stay_readable(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= MAX_FILE_LINES
    too_long = [node.name for node in functions(ast.parse(source)) if length(node) > MAX_FUNCTION_LINES]
    assert too_long == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.stat().st_size], ids=name)
def test_a_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_most_files_and_functions_are_short():
    sources = [path.read_text(encoding="utf-8") for path in SOURCES if path.parent != MADE]
    file_lines = [len(source.splitlines()) for source in sources]
    function_lines = [length(node) for source in sources for node in functions(ast.parse(source))]
    assert sum(lines <= MOSTLY_FILE_LINES for lines in file_lines) / len(file_lines) > 0.75
    assert sum(lines <= MOSTLY_FUNCTION_LINES for lines in function_lines) / len(function_lines) > 0.75


@pytest.mark.parametrize("folder", SOURCE_ROOTS)
def test_no_root_is_a_package(folder):
    """`platform/__init__.py` would shadow Python's own module of that name."""
    assert list((ROOT / folder).glob("__init__.py")) == []


def test_folders_of_tests_are_no_packages():
    """`tests/unit/platform/__init__.py` would do so too."""
    support = ROOT / "tests" / "support" / "millrace_support"
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if path.parent != support] == []
