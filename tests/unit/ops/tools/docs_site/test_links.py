"""Pages of a site whose links lead nowhere, or that load something from elsewhere, are named."""

import pytest

from millrace_tools.docs_site.links import faults


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.css").touch()
    (tmp_path / "other.html").write_text('<h1 id="place">there</h1>')
    (tmp_path / "sub" / "index.html").write_text('<a href="../other.html#place">up</a> <a href="../page.html">page</a>')
    return tmp_path


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="other.html#place">', None),
        ('<a href="other.html#%70lace">', None),
        ('<a href="sub/">', None),
        ('<a href="#here"><b id="here">', None),
        ('<a href="https://example.com/any.html">', None),
        ('<link rel="stylesheet" href="a.css">', None),
        ('<link rel="canonical" href="https://example.com/page.html">', None),
        ('<img src="data:image/png;base64,AAAA">', None),
        ('<a href="gone.html">', "page.html links to gone.html: there is no such page"),
        ('<a href="sub">', "page.html links to sub: there is no such page"),
        ('<a href="other.html#gone">', "page.html links to other.html#gone: the page has no such place"),
        ('<a href="#gone">', "page.html links to #gone: the page has no such place"),
        ('<script src="//example.com/a.js">', "page.html loads //example.com/a.js from elsewhere"),
        (
            '<link rel="preconnect stylesheet" href="https://example.com/a.css">',
            "page.html loads https://example.com/a.css from elsewhere",
        ),
        ('<img src="gone.png">', "page.html loads gone.png, which is not there"),
    ],
)
def test_what_is_wrong_with_a_page_is_said(site, html, fault):
    (site / "page.html").write_text(html)
    assert list(faults(site)) == ([] if fault is None else [fault])
