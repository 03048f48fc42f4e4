"""The page in a real browser: Chromium, where one is installed. Skipped elsewhere."""

import shutil

import pytest
from journals import hostile, recorded, store

sync_api = pytest.importorskip("playwright.sync_api")
pytest.importorskip("plotly")
pytest.importorskip("jinja2")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium"), pytest.mark.timeout(300)]

ROOT = recorded("ranker-8k").parents[3]
LOCAL = ("data:", "blob:")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two sweeps that are compared and a profile; and a sweep whose texts try to be markup."""
    from attnctl.profile.load import load
    from attnctl.report._page.contents import gather
    from attnctl.report._page.page import page

    folder = tmp_path_factory.mktemp("pages")
    profiles = [load(ROOT / "profiles/window-8k-d256.yaml")]
    journals = {
        "usual": [recorded("ranker-8k"), recorded("ranker-8k-short")],
        "hostile": [store(folder / "hostile.jsonl", hostile())],
    }
    for name, paths in journals.items():
        text = page(gather(profiles if name == "usual" else [], paths))
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit:
    """A page that was read to its end, and what it said and asked for meanwhile."""

    def __init__(self, browser, path, width, scheme):
        self.said, self.asked = [], []
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=True)
        self.page = context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        for figure in self.page.locator(".figure").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".main-svg").first.wait_for(state="attached")

    def of(self, script):
        return self.page.evaluate(script)


def test_a_phone_draws_everything_and_asks_nobody(pages, browser):
    path = pages / "usual.html"
    visit = Visit(browser, path, 390, "dark")
    assert visit.said == []
    assert [each for each in visit.asked if not each.startswith(LOCAL)] == [path.as_uri()]
    assert visit.of("document.querySelectorAll('.figure .main-svg').length") > 30
    assert visit.of("document.documentElement.scrollWidth") <= 390  # tables scroll by themselves
    assert visit.of("[...document.querySelectorAll('.figure')].every(f => f.getBoundingClientRect().right <= 390)")
    assert visit.of("[...document.images].every(image => image.naturalWidth > 0)")
    visit.page.context.close()


def test_hostile_texts_do_nothing_and_colours_follow_the_reader(pages, browser):
    path = pages / "hostile.html"
    visit = Visit(browser, path, 1280, "light")
    assert visit.said == []
    assert [each for each in visit.asked if not each.startswith(LOCAL)] == [path.as_uri()]
    colour = "getComputedStyle(document.querySelector('.xtick text')).fill"
    light = visit.of(colour)
    visit.page.emulate_media(color_scheme="dark")
    for _ in range(100):
        if visit.of(colour) != light:
            break
        visit.page.wait_for_timeout(100)
    assert visit.of(colour) != light
    heat = visit.page.locator(".figure").first
    heat.scroll_into_view_if_needed()
    heat.locator(".nsewdrag").hover()
    tip = heat.locator(".hoverlayer .hovertext")
    tip.first.wait_for(state="attached")
    assert "tile_m = 128" in tip.first.text_content()
    assert visit.said == []
    visit.page.context.close()
