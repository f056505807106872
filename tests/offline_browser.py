"""The system's chromium, for pages that must show without a network."""

import contextlib
import os
import re
import shutil

import pytest

from processes import PATIENCE

WIDE, PHONE = 1100, 360
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def require_chromium() -> None:
    """Skip the module, with the reason, where there is no browser."""
    if BROWSER is None:
        print("skipped: no chromium here; `make browser` installs it as root")  # noqa: T201
        pytest.skip("no chromium; `make browser` installs it as root", allow_module_level=True)
    pytest.importorskip("playwright.sync_api", reason="needs the dev extra")


@contextlib.contextmanager
def chromium():
    """Run a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Chromium refuses to run as root with its sandbox; these pages are our own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = driver.chromium.launch(
            executable_path=BROWSER, args=arguments, timeout=1000 * PATIENCE
        )
        yield running
        running.close()


@contextlib.contextmanager
def offline_pages(browser):
    """Give a function that opens a file offline; nothing else may have been asked for or said."""
    contexts, requests, messages = [], [], []

    def open_file(path, width=WIDE, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, **options
        )
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        context.route(re.compile(r"^(?!file:)"), lambda route: route.abort())
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert len(requests) == len(contexts)  # the files themselves
    assert messages == []


def sizes(page):
    """Return the page's width and height."""
    return page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
