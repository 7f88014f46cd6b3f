"""The documentation as a site: `python -m millrace_tools.docs_site`, or `make docs`, in the project's folder.

    pages        which file becomes which page, and the links between pages
    build        lays the pages out below build/docs, and has Zensical make the site of them
    links        what is wrong with the links of the site, and what it would load from elsewhere

Beside them lie what Zensical is told (`zensical.toml`, with the order of the pages) and what the pages need to be
searched without a web server (`iframe-worker.js`).
"""
