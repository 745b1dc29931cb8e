"""A real browser looks at the pages of the site: `python tests/worlds/browser.py SITE CHROMIUM [PAGE...]`.

The Python of `.venv/site` runs it, which has playwright and axe-core. It serves SITE on loopback, and looks at the
named pages, or at all of them. It prints one JSON object. `faults` has a line for each error of the console, each
request to another host, each page that is wider than its screen, and each rule of axe-core that a page breaks. `found`
has the first addresses that the search gives for each word of people.
"""

from __future__ import annotations

import functools
import http.server
import json
import sys
import threading
from pathlib import Path
from typing import Literal

import axe_playwright_python
from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = (360, 1280)
Theme = Literal["light", "dark"]
THEMES: dict[Theme, str] = {"light": "default", "dark": "slate"}
WORDS = ("GDPR", "failover", "rotate", "retention", "offset", "consumer group")
_AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
_BREACHES = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map(
    each => each.id + ' at ' + each.nodes.slice(0, 3).map(node => node.target.join(' ')).join(', '))"""
_FOCUS = """() => { let at = document.activeElement; while (at?.shadowRoot) at = at.shadowRoot.activeElement;
    return at?.tagName === 'INPUT'; }"""
_RESULTS = """() => {
    const found = [], look = (root) => { for (const each of root.querySelectorAll('*')) {
        if (root !== document && each.matches('a[href*=".html"]')) found.push(new URL(each.href).pathname);
        if (each.shadowRoot) look(each.shadowRoot); } };
    look(document); return found; }"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        pass


def look(browser: Browser, address: str, name: str, theme: Theme) -> list[str]:
    """Return the faults of one page in one theme, at both widths."""
    faults: list[str] = []
    where = f"{name}, {theme}"
    page = browser.new_page(color_scheme=theme, reduced_motion="reduce")
    page.on("console", lambda told: faults.append(f"{where}: {told.text}") if told.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(f"{where}: {error}"))
    page.on("request", lambda one: None if one.url.startswith((address, "data:")) else faults.append(one.url))
    page.goto(f"{address}/{name}")
    page.add_script_tag(path=_AXE)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            faults.append(f"{where}: is wider than {width} pixels")
        faults += [f"{where}, {width} pixels: {breach}" for breach in page.evaluate(_BREACHES)]
    if page.evaluate("() => document.body.dataset.mdColorScheme") != THEMES[theme]:
        faults.append(f"{where}: shows another theme")
    page.close()
    return faults


def search(page: Page, address: str, word: str) -> list[str]:
    """Return the addresses that the search of the site gives for a word."""
    page.goto(f"{address}/index.html")
    while not page.evaluate(_FOCUS):  # until the script of the page listens
        page.keyboard.press("Control+k")
        page.wait_for_timeout(500)
    page.keyboard.type(word)
    page.wait_for_function(f"() => ({_RESULTS})().length > 0")
    return [each.lstrip("/") for each in page.evaluate(_RESULTS)[:3]]


def main(site: Path, chromium: str, names: list[str]) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    faults = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in names or sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html")):
            faults += [fault for theme in THEMES for fault in look(browser, address, name, theme)]
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        found = {word: search(page, address, word) for word in WORDS}
        browser.close()
    server.shutdown()
    print(json.dumps({"faults": faults, "found": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
