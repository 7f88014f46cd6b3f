"""Files become pages, and links lead from page to page; each page has its place in the site's order."""

import re
import tomllib
from pathlib import Path

import pytest

import millrace_tools.docs_site
from millrace_tools.docs_site.pages import DocsError, on_the_site, page_of, project_files

ROOT = Path(__file__).parents[5]
PAGES = ["README.md", "docs/README.md", "docs/logs.md", "docs/adr/README.md", "docs/adr/1.md"]
FILES = [*PAGES, "LICENSE", "ops/deploy/x"]


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("README.md", "index.md"),
        ("docs/README.md", "pages.md"),
        ("docs/adr/README.md", "adr/index.md"),
        ("docs/logs.md", "logs.md"),
        ("LICENSE", None),
        ("ops/deploy/x", None),
    ],
)
def test_a_file_becomes_a_page(path, page):
    assert page_of(path) == page


@pytest.mark.parametrize(
    ("path", "link", "there"),
    [
        ("README.md", "[a](docs/logs.md#b)", "[a](logs.md#b)"),
        ("README.md", "![a](docs/logs.md)", "![a](logs.md)"),
        ("docs/logs.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/logs.md", "[a](adr/)", "[a](adr/index.md)"),
        ("docs/adr/1.md", "[a](../logs.md)", "[a](../logs.md)"),
        ("docs/logs.md", "[a](../ops/deploy)", "a"),
        ("README.md", "[a](LICENSE)", "a"),
        ("README.md", "[a](#b)", "[a](#b)"),
        ("README.md", "[a](https://example.com/b.md)", "[a](https://example.com/b.md)"),
        ("README.md", "```sh\n[a](nowhere.md)\n```\n", "```sh\n[a](nowhere.md)\n```\n"),
    ],
)
def test_a_link_leads_to_the_page(path, link, there):
    assert on_the_site(link, path, FILES) == there


def test_a_link_that_leads_nowhere_is_named():
    with pytest.raises(DocsError, match=re.escape("docs/adr/1.md: the link to logs.md leads nowhere")):
        on_the_site("[a](logs.md)", "docs/adr/1.md", FILES)


def test_the_reference_of_a_name_is_put_where_its_comment_is():
    assert on_the_site("<!-- api: millrace.Producer -->", "README.md", FILES) == "::: millrace.Producer"


def pages_in(nav):
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(one)


def test_each_page_has_one_place_in_the_order_of_the_site():
    settings = Path(millrace_tools.docs_site.__file__).with_name("zensical.toml")
    nav = tomllib.loads(settings.read_text(encoding="utf-8"))["project"]["nav"]
    pages = [page for file in project_files(ROOT) if (page := page_of(file)) and page.endswith(".md")]
    assert sorted(pages_in(nav)) == sorted(pages)


@pytest.mark.parametrize("page", ["README.md", "formats/README.md", "adr/README.md"])
def test_an_index_of_a_folder_lists_all_its_pages(page):
    index = ROOT / "docs" / page
    listed = set(re.findall(r"\]\((?!\.\.)([\w.-]+\.md)\)", index.read_text(encoding="utf-8")))
    assert listed == {path.name for path in index.parent.glob("*.md")} - {"README.md"}
