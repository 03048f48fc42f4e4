"""What a report says, against the journals that it reads."""

import csv
import io
import json
from collections import Counter

import pytest
from journals import FORWARD, NAMES, failed, recorded, records, store, with_failures

from attnctl.errors import AttnctlError
from attnctl.profile.load import load
from attnctl.report._page.compared import paired
from attnctl.report._page.contents import gather
from attnctl.report._page.document import document
from attnctl.report._page.heat import grid_of
from attnctl.report._page.recall import recall
from attnctl.report._page.rows import Row, as_csv, rows
from attnctl.report._page.timeline import timeline, without_times
from attnctl.report._page.why import contenders, why
from attnctl.tune.journal import read
from attnctl.tune.outcome import Status
from attnctl_kernels.contract import Candidate, fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_a_journal_alone_gives_back_the_decision(name):
    sweep = recall(recorded(name))
    done = read(recorded(name)).done
    assert sweep.result.winner == done.winner
    assert sweep.result.decision.reason == done.reason
    timed = [row for row in rows(sweep) if row.outcome == "ok"]
    assert [row.ratio for row in timed] == sorted(row.ratio for row in timed)
    assert timed[0].ratio == 1


@pytest.mark.parametrize("name", FORWARD)
def test_a_journal_of_a_whole_space_says_what_was_dropped(name):
    sweep = recall(recorded(name))
    assert sweep.whole
    assert len({row.candidate.key for row in rows(sweep)}) == len(rows(sweep)) == 108


def test_a_profile_that_narrows_the_search_explains_its_journal(tmp_path):
    text = (recorded("ranker-8k").parents[3] / "profiles/ranker-8k.yaml").read_text(encoding="utf-8")
    path = tmp_path / "ranker-8k.yaml"
    path.write_text(text + "search: {forward: {tile_m: [128, 192]}}\n", encoding="utf-8")
    loaded = load(path)
    found = records("ranker-8k")
    narrow = [each for each in found if each["record"] != "outcome" or each["candidate"]["config"]["tile_m"] != 64]
    keys = [Candidate.model_validate_json(json.dumps(e["candidate"])).key for e in narrow if e["record"] == "outcome"]
    narrow[0]["space"] = fingerprint(sorted(keys))
    journal = store(tmp_path / "narrow.jsonl", narrow)
    alone = recall(journal)
    assert not alone.whole
    assert alone.result.winner.config["tile_m"] == 192
    assert not alone.result.space.drops
    sweep = recall(journal, [loaded])
    assert sweep.whole
    assert sweep.profile is loaded
    assert {drop.candidate.config["tile_m"] for drop in sweep.result.space.drops} == {128, 192}


def test_a_sweep_without_finals_is_interrupted_and_says_the_fastest(tmp_path):
    found = [each for each in records("window-8k-d256") if each["record"] not in ("finals", "done")]
    sweep = recall(store(tmp_path / "cut.jsonl", found))
    assert sweep.result.status is Status.INTERRUPTED
    described = document(gather([], [tmp_path / "cut.jsonl"]))["sweeps"][0]
    assert described["verdict"][0].startswith("interrupted; fastest so far, ")
    assert described["winner"] is None


def test_a_sweep_in_which_nothing_works_says_so(tmp_path):
    found = [
        failed(each, "compile_error", "ptxas: no") if each["record"] == "outcome" else each
        for each in records("window-8k-d256")
        if each["record"] not in ("finals", "done")
    ]
    contents = gather([], [store(tmp_path / "broken.jsonl", found)])
    (sweep, found_rows), *_ = contents.sweeps
    assert sweep.result.status is Status.NO_CONFIG
    assert Counter(row.outcome for row in found_rows) == {"compile_error": 16, "dropped": 92}
    assert why(sweep, found_rows).lines == ()


def test_every_kind_of_failure_is_a_row_with_its_reason(tmp_path):
    sweep = recall(store(tmp_path / "failures.jsonl", with_failures("ranker-8k", "because")))
    reasons = {row.outcome: row.reason for row in rows(sweep) if row.reason == "because"}
    assert len(reasons) == 7
    assert not any(row.timed for row in rows(sweep) if row.reason == "because")


def test_what_the_strategy_left_out_is_a_row_too(tmp_path):
    found = records("window-8k-d64")
    tried = [each for each in found if each["record"] == "outcome"]
    finalists = [each["candidate"] for record in found if record["record"] == "finals" for each in record["contenders"]]
    left_out = [each for each in tried if each["candidate"] not in finalists][:40]
    sweep = recall(store(tmp_path / "guided.jsonl", [each for each in found if each not in left_out]))
    assert sweep.whole
    assert Counter(row.outcome for row in rows(sweep))["not_tried"] == 40


def test_csv_and_json_hold_the_same(tmp_path):
    contents = gather([], [recorded("ranker-8k"), recorded("document-8k-gqa")])
    table = list(csv.DictReader(io.StringIO(as_csv(contents.sweeps))))
    facts = [each for sweep in document(contents)["sweeps"] for each in sweep["candidates"]]
    assert len(table) == len(facts) == 216
    for line, fact in zip(table, facts, strict=True):
        assert line["outcome"] == fact["outcome"]
        assert line["config.tile_n"] == str(fact["config"]["tile_n"])
        assert line["median_us"] == ("" if fact["median_us"] is None else str(fact["median_us"]))
        assert line["finals_ratio"] == (str(fact["finals"]["ratio"]) if fact["finals"] else "")
    json.dumps(document(contents), allow_nan=False)


def test_the_winner_stands_beside_default_and_next():
    sweep = recall(recorded("ranker-8k"))
    found = rows(sweep)
    roles = contenders(sweep, found)
    assert {name: row.label for name, row in roles.items()} == {
        "winner": "c91",
        "default": "default",
        "incumbent": "default",
        "next": "c69",
    }
    table = why(sweep, found)
    assert table.heads == ("", "winner (c91)", "default, incumbent", "next (c69)")
    lines = {line[0]: line[1:] for line in table.lines}
    assert lines["tile_m"] == ("192", "128", "128")
    assert lines["shared memory"][0] == "230,400 of 232,448 bytes"
    assert lines["registers, compiled"] == ("128", "168", "168")


def test_two_sweeps_are_compared_config_by_config():
    sweeps = [(each, rows(each)) for each in map(recall, map(recorded, ("ranker-8k", "ranker-8k-short")))]
    (pair,) = paired(sweeps)
    assert pair.differences == ("mask.history_len 6144 and 2048",)
    assert len(pair.points) == 90
    assert all(a.candidate == b.candidate for a, b in pair.points)
    assert pair.second_in_first == pytest.approx(
        next(row.ratio for row in sweeps[0][1] if row.candidate == sweeps[1][0].result.winner)
    )


def row(ratio=None, **config):
    return Row(Candidate(config=config), "", "ok" if ratio else "dropped", ratio=ratio, median_us=ratio)


def test_heat_maps_lie_over_the_tiles():
    grid = grid_of(rows(recall(recorded("ranker-8k"))))
    assert (grid.down, grid.across, grid.others) == ("tile_m", "tile_n", ("mma_pv_is_rs", "intra_wg_overlap"))


def test_heat_maps_lie_over_the_numbers_with_most_values_where_there_are_no_tiles():
    found = [row(1.0, stages=s, warps=w, flag=f) for s in (1, 2) for w in (2, 4, 8) for f in (True, False)]
    grid = grid_of(found)
    assert (grid.down, grid.across, grid.others) == ("stages", "warps", ("flag",))


def test_one_parameter_makes_no_heat_map():
    assert grid_of([row(1.0, stages=1, warps=4), row(1.1, stages=2, warps=4)]) is None


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(AttnctlError, match=r"other\.jsonl:1: not a journal"):
        gather([], [path])


def test_a_journal_of_an_unknown_family_is_refused(tmp_path):
    found = records("ranker-8k")
    found[0]["task"]["family"] = "gone"
    with pytest.raises(AttnctlError, match="a family that is not installed"):
        gather([], [store(tmp_path / "gone.jsonl", found)])


def test_the_time_line_has_a_lane_per_worker(tmp_path):
    found = records("window-8k-d256")
    outcomes = [each for each in found if each["record"] == "outcome"]
    for number, record in enumerate(outcomes):
        at = 1e9 + number
        compiled = {"lane": "compile", "worker": 11 + number % 3, "begun": at, "ended": at + 2.5}
        record["result"]["compiled"]["span"] = compiled
        record["result"]["span"] = {"lane": "measure", "worker": 7, "begun": at + 3, "ended": at + 3.5}
    sweep = recall(store(tmp_path / "spans.jsonl", found))
    assert without_times(sweep) == ""
    figure, *_ = timeline(sweep)
    assert figure.title == "Time line of the screening"
    assert figure.layout["yaxis"]["categoryarray"] == ["device", "compile 1", "compile 2", "compile 3"]
    measured, compiled = figure.data
    assert measured["base"] == [number + 3 for number in range(16)]
    assert set(measured["y"]) == {"device"}
    assert sum(compiled["x"]) == 16 * 2.5
    assert (
        "18.5 s of screening, the device in use for 8.0 s of it (43%); 3 compile workers for 40.0 s." in figure.summary
    )


def test_the_time_line_shows_finals_and_the_last_check(tmp_path):
    found = records("window-8k-d256")
    spans = iter(
        {"lane": "measure", "worker": number, "begun": 1e9 + number, "ended": 1e9 + number + 0.5}
        for number in range(20)
    )
    for record in found:
        if record["record"] == "outcome":
            record["result"]["span"] = next(spans)
        elif record["record"] == "finals":
            record["span"] = next(spans)
        elif record["record"] == "done":
            record["last_check"] = next(spans)
    figure, *_ = timeline(recall(store(tmp_path / "spans.jsonl", found)))
    assert figure.title == "Time line of the screening and finals"
    assert {each["name"]: len(each["x"]) for each in figure.data} == {"screening": 16, "finals": 3, "last check": 1}
    assert {lane for each in figure.data for lane in each["y"]} == {"device"}
    assert "19.5 s of screening and finals, the device in use for 10.0 s of it (51%)" in figure.summary


def test_a_journal_without_times_has_no_time_line():
    sweep = recall(recorded("window-8k-d256"))
    assert without_times(sweep).startswith("This journal says how long each step took, and not when")
    titles = [figure.title for figure in timeline(sweep)]
    assert titles == ["The measuring device, config by config", "The compile workers, config by config"]
