"""The house's rules that a linter does not know: lengths, docstrings, plain words, no shadowed modules."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from millrace_ops.cli.app import app
from millrace_support.pages import PAGES

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("platform", "broker", "pipelines", "ops", "tests/support")
MADE = {"absent_fields.py", "messages"}  # while the package is built (hatch_build.py)
SOURCES = sorted(path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py") if not MADE & {*path.parts})
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MOSTLY_FILE_LINES = 240
MOSTLY_FUNCTION_LINES = 15


def name(path):
    return str(path.relative_to(ROOT))


class Function(NamedTuple):
    """A function or a method; `is_inner` says whether it lies inside another one."""

    name: str
    lines: int
    docstring: str | None
    is_inner: bool
    is_property_or_overload: bool


class Module(NamedTuple):
    """What the rules look at in a file."""

    lines: int
    docstring: str | None
    functions: list[Function]


@cache
def module(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    return Module(len(source.splitlines()), ast.get_docstring(tree), list(functions(tree)))


def all_functions():
    return ((path, one) for path in SOURCES for one in module(path).functions)


def functions(node, *, is_inner=False):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # there are only lambdas below
            continue
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function:
            lines = child.end_lineno - child.lineno + 1
            yield Function(child.name, lines, ast.get_docstring(child), is_inner, is_property_or_overload(child))
        yield from functions(child, is_inner=is_inner or is_function)


def is_property_or_overload(function):
    return any(re.search(r"property|overload|\.setter", ast.unparse(one)) for one in function.decorator_list)


def test_files_and_functions_stay_readable():
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in {*SOURCES, *TESTS}}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}
    functions = [f"{name(path)}: {one.name}" for path, one in all_functions() if one.lines > MAX_FUNCTION_LINES]
    assert functions == []


def test_a_module_says_what_it_is():
    assert [name(path) for path in SOURCES if path.stat().st_size and not module(path).docstring] == []


def test_most_files_and_functions_are_short():
    file_lines = [module(path).lines for path in SOURCES]
    function_lines = [one.lines for _, one in all_functions()]
    assert sum(lines <= MOSTLY_FILE_LINES for lines in file_lines) / len(file_lines) > 0.75
    assert sum(lines <= MOSTLY_FUNCTION_LINES for lines in function_lines) / len(function_lines) > 0.75


def test_no_root_is_a_package():
    """`platform/__init__.py` would shadow Python's own module of that name."""
    assert [folder for folder in SOURCE_ROOTS if (ROOT / folder / "__init__.py").exists()] == []


def test_folders_of_tests_are_no_packages():
    """`tests/unit/platform/__init__.py` would do so too."""
    support = ROOT / "tests" / "support" / "millrace_support"
    assert [path for path in TESTS if path.name == "__init__.py" and path.parent != support] == []


THIRD_PERSON = re.compile(r"[A-Z][a-z]+s")
# Words that look like a verb in the third person.
NOUNS = re.compile(
    "Always|Batches|Besides|Bytes|Claims|Columns|Configs|Descriptors|Entries|Epochs|Errors|Events|Fields|Files|"
    "Groups|Headers|Indexes|Integers|Its|Keys|Leaders|Letters|Lines|Logs|Members|Messages|Milliseconds|Names|"
    "Numbers|Offsets|Options|Others|Partitions|Parts|Positions|Producers|Properties|Ranges|Records|Replicas|"
    "Requests|Rows|Schemas|Seconds|Segments|Sentences|Settings|Tables|This|Times|Timestamps|Topics|"
    "Transactions|Types|Values|Versions|Whereas|Words"
)


def commands(typer_app):
    """Yields (file, name) of the commands' functions, whose docstrings are help texts."""
    for one in (*typer_app.registered_commands, typer_app.registered_callback):
        if one is not None:
            callback = inspect.unwrap(one.callback)
            yield Path(inspect.getsourcefile(callback)), callback.__name__
    for group in typer_app.registered_groups:
        yield from commands(group.typer_instance)


COMMANDS = set(commands(app))


def begins_with_a_verb(docstring):
    first = docstring.split()[0].strip(".,:;")
    return THIRD_PERSON.fullmatch(first) is not None and NOUNS.fullmatch(first) is None


def test_a_docstring_begins_with_what_the_function_does():
    """In the third person: "Returns ...". Properties have a noun phrase, commands are imperative."""
    wrong = [
        f"{name(path)}: {one.name}: {one.docstring.splitlines()[0]}"
        for path, one in all_functions()
        if one.docstring and not begins_with_a_verb(one.docstring)
        if not one.is_inner and not one.is_property_or_overload and (path, one.name) not in COMMANDS
    ]
    assert wrong == []


BARE_ERROR = re.compile(r"(?:^|[;.] )[A-Z]\w*Error(?=[.;,]| where\b| for\b| when\b| if\b| unless\b)")
SECTION = re.compile(r"(Args|Attributes|Raises):|.*(\||  )", re.DOTALL)  # and tables and drawings


def test_a_docstring_says_that_an_error_is_raised():
    """Not "; StorageError where ...", which has no verb."""
    docstrings = [(path, one.name, one.docstring) for path, one in all_functions() if one.docstring]
    paragraphs = [(path, name_, part) for path, name_, text in docstrings for part in text.split("\n\n")]
    assert [
        f"{name(path)}: {name_}: {part}"
        for path, name_, part in paragraphs
        if not SECTION.match(part) and BARE_ERROR.search(part.replace("\n", " "))
    ] == []


ODD = re.compile(
    r"\b(anew|whither|wish(es)?|thereof|thereby|whence|hence|amid|of then|of now|of old|naught|unto)\b|\bspec [A-J]\d",
    re.IGNORECASE,
)
TEXTS = sorted({*SOURCES, *TESTS, *PAGES} - {Path(__file__)})


def test_words_are_plain():
    odd = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ODD.search(line)
    ]
    assert odd == []
