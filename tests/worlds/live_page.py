"""A real browser opens a page that follows a topic: `python tests/worlds/live_page.py URL CHROMIUM`.

The Python of `.venv/browser` runs it, which has playwright. It prints what the page heard as one JSON object.
"""

from __future__ import annotations

import json
import sys

from playwright.sync_api import sync_playwright

if __name__ == "__main__":
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=sys.argv[2], args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(sys.argv[1])
        print(json.dumps(page.evaluate("() => window.done")))
        browser.close()
