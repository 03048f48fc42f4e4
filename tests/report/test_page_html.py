"""The HTML file by itself: one file, nothing fetched, texts escaped, figures that the library accepts."""

import json
import re
from html.parser import HTMLParser

import pytest
from journals import FORWARD, HOSTILE, hostile, multiplied, recorded, store, with_failures

from attnctl.cli import app
from attnctl.profile.load import load
from attnctl.report._page.contents import gather

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

ROOT = recorded("ranker-8k").parents[3]


class Parsed(HTMLParser):
    """Links, identifiers, scripts and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.identifiers, self.scripts, self.tags, self.attributes = [], [], [], [], []
        self.words = ""
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes += found
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if "id" in found:
            self.identifiers.append(found["id"])
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        if tag == "script":
            self.scripts.append([found, ""])

    def handle_endtag(self, tag):
        self.words += " "

    def handle_data(self, data):
        if self.tags[-1:] == ["script"]:
            self.scripts[-1][1] += data
        else:
            self.words += data


def html(*journals, profiles=()):
    from attnctl.report._page.page import page

    return page(gather([load(path) for path in profiles], list(journals)))


def figures(parsed):
    """The figures, with their hover texts in place."""
    document = json.loads(next(text for attributes, text in parsed.scripts if attributes.get("id") == "figures"))

    def told(value):
        return [told(each) for each in value] if isinstance(value, list) else document["tips"][value]

    for trace in (trace for each in document["figures"] for trace in each["data"]):
        if "customdata" in trace:
            trace["customdata"] = told(trace["customdata"])
    return document["figures"]


@pytest.fixture(scope="module")
def everything():
    return html(*map(recorded, FORWARD[:3]), profiles=[ROOT / "profiles/window-8k-d256.yaml"])


def test_the_file_needs_nothing_else(everything):
    parsed = Parsed(everything)
    assert len(everything.encode()) < 6e6
    assert all(each.startswith(("#", "data:image/svg+xml;base64,")) for each in parsed.addresses)
    assert {each[1:] for each in parsed.addresses if each.startswith("#")} <= set(parsed.identifiers)
    assert len(parsed.identifiers) == len(set(parsed.identifiers))
    assert "default-src 'none'" in parsed.policy
    assert "unsafe-eval" not in parsed.policy
    assert not {"link", "iframe", "object", "embed", "base"} & set(parsed.tags)


def test_every_figure_has_words_and_is_one_that_plotly_accepts(everything):
    from plotly.graph_objects import Figure

    parsed = Parsed(everything)
    found = figures(parsed)
    assert {each["id"] for each in found} <= set(parsed.identifiers)
    for each in found:
        assert len(each["summary"]) > 20
        Figure(data=each["data"], layout=each["layout"])  # raises for a name or value that the library does not know


def test_a_sweep_has_all_its_figures(everything):
    titles = [each["title"] for each in figures(Parsed(everything))]
    for title in (
        "Best over mma_pv_is_rs, intra_wg_overlap",
        "mma_pv_is_rs true, intra_wg_overlap true",
        "Finals",
        "Cycle by cycle",
        "Clock and throttling in the finals",
        "What happened to each config",
        "All that ran, in order",
        "tile_m",
        "The measuring device, config by config",
        "The compile workers, config by config",
        "Standing in both sweeps",
    ):
        assert titles.count(title) == 3, title
    assert "Time against wasted work" in titles


def test_the_heat_map_has_the_times_of_the_journal():
    found = figures(Parsed(html(recorded("ranker-8k"))))
    best = next(each for each in found if each["title"].startswith("Best over"))
    heat = best["data"][0]
    assert heat["x"] == ["64", "80", "96", "112", "128", "144", "160", "176", "192"]
    assert heat["y"] == ["64", "128", "192"]
    assert heat["z"][2][4] == 1.0  # 192 x 128, the winner
    assert heat["z"][2][8] is None  # dropped by a rule
    winner = next(trace for trace in best["data"] if trace.get("name") == "winner")
    assert (winner["x"], winner["y"]) == (["128"], ["192"])


def test_texts_from_outside_stay_texts(tmp_path):
    text = html(store(tmp_path / "hostile.jsonl", hostile()))
    parsed = Parsed(text)
    assert HOSTILE in parsed.words
    assert not any(name.startswith("on") for name in parsed.attributes)
    assert len(parsed.scripts) == 3
    assert "<img src=x" not in text
    for each in figures(parsed):  # plotly itself makes markup of a few tags in its texts
        assert "<img" not in json.dumps(each["data"])


def test_failures_of_every_kind_are_in_the_page(tmp_path):
    text = html(store(tmp_path / "failures.jsonl", with_failures("ranker-8k", "the reason of it")))
    words = re.sub(r"\s+", " ", Parsed(text).words)
    for kind in ("compile_error", "out_of_resources", "launch_error", "wrong_result", "timeout", "worker_died"):
        assert f"{kind} 1 the reason of it" in words


def test_a_thousand_candidates_stay_below_six_megabytes(tmp_path):
    text = html(store(tmp_path / "many.jsonl", multiplied("window-8k-d64", 1000)))
    assert len(text.encode()) < 6e6
    assert "1000 configs" in text


def test_a_profile_without_sweeps_shows_its_masks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parsed = Parsed(html(profiles=[ROOT / "profiles/window-8k-d256.yaml"]))
    assert "6,592 of 128 x 80 (queries x keys)" in parsed.words
    assert sum(each.startswith("data:image/svg+xml") for each in parsed.addresses) == 1


def test_a_profile_brings_the_journals_of_its_state_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".attnctl/journals/nvidia_h200/ranker-8k"
    folder.mkdir(parents=True)
    from journals import records

    store(folder / "forward-x.jsonl", records("ranker-8k"))
    store(folder / "forward-x.1.jsonl", records("ranker-8k"))  # set aside by a later sweep
    store(folder / "forward-y.jsonl", records("ranker-8k-short"))  # of another task
    contents = gather([load(ROOT / "profiles/ranker-8k.yaml")], [])
    assert [sweep.path.name for sweep, _ in contents.sweeps] == ["forward-x.jsonl"]


def test_the_command_writes_all_three_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    args = [
        "report",
        str(recorded("window-8k-d256")),
        "--out",
        "out/a.html",
        "--csv",
        "out/a.csv",
        "--json",
        "out/a.json",
    ]
    assert app.run(args) == 0
    assert capsys.readouterr().err.splitlines() == [f"written: out/a.{kind}" for kind in ("html", "csv", "json")]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["a.csv", "a.html", "a.json"]
    assert json.loads((tmp_path / "out/a.json").read_text())["kind"] == "report"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gone.jsonl"], "gone.jsonl: no such file"),
        (["gone.yaml"], "gone.yaml: "),
        (["."], "there is no journal in this folder"),
    ],
)
def test_what_is_not_there_is_wrong_usage(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert app.run(["report", *args]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_plotly_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    assert app.run(["report", str(recorded("window-8k-d256"))]) == 4
    assert "pip install 'attnctl[report]'" in capsys.readouterr().err
    assert app.run(["report", str(recorded("window-8k-d256")), "--csv", "a.csv"]) == 0
