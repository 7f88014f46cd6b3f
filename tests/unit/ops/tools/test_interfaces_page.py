"""docs/api.md has the public names of the packages, each with a sentence of its docstring."""

import re
from pathlib import Path

import millrace
import millrace_pipelines.warehouse
from millrace_tools.interfaces_page import SECTIONS, public_names, render

PAGE = Path(__file__).parents[4] / "docs" / "api.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), "python -m millrace_tools.interfaces_page > docs/api.md"


def test_each_name_says_what_it_is():
    assert re.findall(r"^\| `(\w+)` \|  \|$", render(), re.MULTILINE) == []


def test_what_the_packages_offer_by_their_own_names_is_on_the_page():
    names = {name for section in SECTIONS for name in public_names(section)}
    assert names >= {*millrace.__all__, *millrace_pipelines.warehouse._FACE}


def test_dir_shows_what_the_warehouse_offers():
    assert dir(millrace_pipelines.warehouse) == sorted(millrace_pipelines.warehouse._FACE)
