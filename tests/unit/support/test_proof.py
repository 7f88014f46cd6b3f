"""The proof of `make test`: its page names what there is, of every kind of test, and `--proof` runs just that."""

from pathlib import Path

import pytest

from millrace_support import proof as plugin
from millrace_support.proof import proof

ROOT = Path(__file__).parents[3]
TESTS = {
    "tests/proof.txt": "# a remark\n\nunit  all of it\ncrash/test_kill.py::test_one  one\n",
    "tests/unit/test_some.py": "def test_unit(): pass",
    "tests/crash/test_kill.py": "def test_one(): pass\ndef test_other(): pass",
}


def test_the_page_names_what_there_is_of_each_kind():
    named = [Path(str(path).split("::", maxsplit=1)[0]) for path in proof(ROOT)]
    assert [path for path in named if not path.exists()] == []
    kinds = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}
    assert {path.relative_to(ROOT / "tests").parts[0] for path in named} == kinds


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--proof"], ["test_one", "test_unit"]),
        (["--proof", "tests/crash"], ["test_one", "test_other"]),
        ([], ["test_one", "test_other", "test_unit"]),
    ],
)
def test_what_is_run(pytester, arguments, names):
    for path, text in TESTS.items():
        file = pytester.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    pytester.makeini("[pytest]\ntestpaths = tests")
    run = pytester.inline_run("--collect-only", *arguments, plugins=[plugin])
    assert sorted(call.item.name for call in run.getcalls("pytest_itemcollected")) == names
