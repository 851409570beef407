"""The browser that the tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser_cases import chromium
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield launched
        launched.close()
