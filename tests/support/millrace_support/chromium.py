"""A browser for tests: the machine's own Chromium, such as Debian's, which Playwright drives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect, sync_playwright

VARIABLE = "MILLRACE_CHROMIUM"
PATIENCE_MS = 600_000
WINDOW = (1280, 800)
WITHOUT_GPU_AND_SHARED_MEMORY = ("--disable-gpu", "--disable-dev-shm-usage")


def find_chromium() -> str | None:
    """Returns the path of the program that MILLRACE_CHROMIUM names, or else of `chromium`; None where there is none."""
    return shutil.which(os.environ.get(VARIABLE) or "chromium")


@contextmanager
def chromium_page(program: str) -> Iterator[Page]:
    """Opens an empty page, in English and in UTC; what is awaited on it may take PATIENCE_MS."""
    width, height = WINDOW
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=WITHOUT_GPU_AND_SHARED_MEMORY, timeout=PATIENCE_MS
        )
        try:
            page = browser.new_page(
                viewport={"width": width, "height": height},
                locale="en-US",
                timezone_id="UTC",
                reduced_motion="reduce",
            )
            page.set_default_timeout(PATIENCE_MS)
            yield page
        finally:
            browser.close()
