"""The documentation as a site: it is built without a fault, and its search works from the disk, without a network."""

from pathlib import Path

import pytest

from millrace_support.chromium import VARIABLE, chromium_page, find_chromium
from millrace_tools.docs_site.build import build

ROOT = Path(__file__).parents[2]
CHROMIUM = find_chromium()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("docs"))


def test_the_site_is_built_of_the_pages(site):
    assert "installs Millrace, a log platform in Python" in (site / "index.html").read_text(encoding="utf-8")


def test_the_reference_of_interfaces_is_made_from_docstrings(site):
    assert 'id="millrace.client.producer.Producer.send"' in (site / "api.html").read_text(encoding="utf-8")


@pytest.mark.skipif(CHROMIUM is None, reason=f"there is no Chromium, and {VARIABLE} names none")
def test_the_search_finds_a_page_and_no_other_host_is_asked(site):
    asked = []
    with chromium_page(CHROMIUM) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "adr" / "index.html").as_uri())
        page.get_by_role("button", name="Search").first.click()
        page.get_by_role("combobox").fill("TopicRecreatedError")
        page.get_by_role("option", name="What stops a load").click()
        page.wait_for_url("**/warehouse.html*")
    assert {url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))} == set()
