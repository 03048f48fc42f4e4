"""The picture of a report: the page of a recorded sweep, in a Chromium that is installed.

python docs/pictures/photograph.py
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
JOURNAL = HERE.parents[1] / "tests/data/journals/ranker-8k.jsonl.gz"
WIDTH, HEIGHT = 1100, 1500
COLOURS = 200  # enough for flat areas and their edges


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no Chromium here")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder, "report.html")
        subprocess.run([sys.executable, "-m", "attnctl", "report", str(JOURNAL), "--out", str(page)], check=True)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(page.as_uri())
        tab.locator(".figure .main-svg").first.wait_for()
        tab.wait_for_timeout(2000)  # figures that come into view draw one after the other
        picture = Image.open(io.BytesIO(tab.screenshot()))
        browser.close()
    picture.convert("RGB").quantize(COLOURS).save(HERE / "report.png", optimize=True)


if __name__ == "__main__":
    main()
