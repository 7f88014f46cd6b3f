"""Every block of code in the pages is run by a test, or checked here by what reads it, or says that it is no code."""

import re

import pytest

from millrace_support import data_blocks
from millrace_support.pages import FENCE, PAGES, ROOT, blocks
from millrace_support.shell_blocks import check_shell, of_console, of_cron

BLOCKS = [block for page in PAGES for block in blocks(page)]
# What runs the blocks of a page that are in a language. The test names the page.
RUN_BY = {
    ("docs/clients.md", "python"): (
        "integration/test_client_examples.py",
        "integration/test_clients_page_connector.py",
    ),
    ("docs/client-security.md", "python"): ("integration/test_client_examples.py",),
    ("docs/configuration.md", "python"): ("integration/test_delete_policies.py",),
    ("docs/downstream.md", "python"): ("integration/test_downstream_page.py",),
    ("docs/languages.md", "python"): ("integration/test_client_examples.py",),
    ("docs/testing.md", "python"): ("integration/test_pytest_plugin.py",),
    ("docs/tutorial.md", "python"): ("integration/test_played_pages.py",),
    ("docs/warehouse.md", "python"): ("integration/test_warehouse_reading.py",),
    ("docs/iceberg.md", "python"): ("integration/test_iceberg_loads.py",),
    ("docs/warehouse-modes.md", "python"): ("integration/test_warehouse_reading.py",),
    ("docs/warehouse-reading.md", "python"): ("integration/test_warehouse_reading.py",),
}
CHECKS = {
    "sh": lambda block, folder: check_shell(block.text, folder),
    "bash": lambda block, folder: check_shell(block.text, folder),
    "console": lambda block, folder: check_shell(of_console(block.text), folder),
    "cron": lambda block, folder: check_shell(of_cron(block.text), folder),
    "properties": data_blocks.check_properties,
    "yaml": data_blocks.check_yaml,
    "json": data_blocks.check_json,
    "toml": data_blocks.check_toml,
    "ini": data_blocks.check_ini,
}
NO_CODE = {"text"}
"""Output, and drawings of bytes and nodes."""
LIST = re.compile(r"^ {0,3}([-*]|\d+\.) ", re.MULTILINE)
READ_BY_NOBODY_HERE = {("docs/security.md", "nginx"): "nginx is no part of this project, and no test needs it"}


def kind(block):
    return block.page, block.language


@pytest.mark.parametrize("block", [block for block in BLOCKS if kind(block) not in RUN_BY], ids=str)
def test_a_block_is_accepted_by_what_reads_it(block, tmp_path):
    if block.language not in NO_CODE and kind(block) not in READ_BY_NOBODY_HERE:
        CHECKS[block.language](block, tmp_path)


@pytest.mark.parametrize(("claimed", "tests"), RUN_BY.items(), ids=lambda one: str(one[0]))
def test_what_runs_a_block_names_its_page(claimed, tests):
    page, _ = claimed
    assert claimed in {kind(block) for block in BLOCKS}
    assert all(page.rpartition("/")[2] in (ROOT / "tests" / test).read_text(encoding="utf-8") for test in tests)


def test_what_is_left_out_is_there():
    assert {*READ_BY_NOBODY_HERE} <= {kind(block) for block in BLOCKS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_stands_in_fences(page):
    """An indented block has no language, so that nobody could check it. Indented lines of a list are text."""
    paragraphs = FENCE.sub("```", page.read_text(encoding="utf-8")).split("\n\n")
    pairs = zip(["", *paragraphs], paragraphs, strict=False)
    assert [one for last, one in pairs if one.startswith("    ") and not LIST.search(last)] == []
