"""A real browser for tests: Debian's chromium, driven by playwright."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
# root may not use the sandbox, and containers have little shared memory
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
PATIENCE = 240_000  # milliseconds: a guard against hanging, on a busy machine too
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@contextmanager
def open_page(address, *, size=(1280, 900), **options):
    """A page without errors on its console, and without a request that leaves the machine."""
    problems = []

    def check(request):
        if not request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")):
            problems.append(f"requested {request.url}")

    with playwright.sync_playwright() as started:
        launched = {"executable_path": CHROMIUM, "args": ARGUMENTS, "timeout": PATIENCE}
        browser = started.chromium.launch(**launched)
        viewport = {"width": size[0], "height": size[1]}
        page = browser.new_context(viewport=viewport, **options).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", check)
        page.problems = problems
        page.goto(address)
        page.wait_for_selector(".surface")
        yield page
        browser.close()
    assert not problems
