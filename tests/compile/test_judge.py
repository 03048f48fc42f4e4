"""From a compiler's result to findings; which cases are one kernel; notes in every format."""

import gzip
import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from attnctl.compile.judge import judge, note_of
from attnctl.compile.plan import plan
from attnctl.compile.run import Compilation, CompiledKernel
from attnctl.gpu.protocol import Result
from attnctl.profile.load import load
from attnctl.report import get_renderer
from attnctl.rules.check import Report
from attnctl.rules.form.compile import kernel_spills
from attnctl_kernels.contract import Compiled, Outcome

JOURNALS = Path(__file__).parents[1] / "data" / "journals"
PROFILE = """\
family: fa4
arch: sm_90
problem: {seq_len: [256, 1024, 2048, 4096], num_heads_q: 8, head_dim: 128}
mask: {pattern: causal}
config:
  forward: {tile_m: 128, tile_n: 128}
"""
FITS = {"registers": 168, "local_bytes": 0, "stack_bytes": 0, "smem_bytes": 197632}


def result(outcome=Outcome.OK, reason="", *, seconds=True, cached=False, **resources):
    compiled = Compiled(seconds=6.25, resources=FITS | resources, cached=cached) if outcome is Outcome.OK else None
    return Result(outcome=outcome, reason=reason, compiled=compiled, seconds={"compile": 6.5} if seconds else {})


@pytest.fixture
def loaded(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE)
    return load(path)


@pytest.fixture
def kernel(loaded):
    return plan(loaded.profile, ()).kernels[-1]


def test_lengths_of_several_tiles_are_one_kernel(loaded):
    planned = plan(loaded.profile, ())
    assert [each.indices for each in planned.kernels] == [[0], [1, 2, 3]]
    assert (planned.count, planned.refused) == (4, 0)


@pytest.mark.parametrize(
    ("found", "code", "part"),
    [
        (result(), None, ""),
        (result(Outcome.COMPILE_ERROR, "DSLRuntimeError: no"), "COMPILE001", "does not compile: DSLRuntimeError: no"),
        (result(Outcome.OUT_OF_RESOURCES, "Insufficient registers"), "COMPILE001", "Insufficient registers"),
        (result(Outcome.WORKER_DIED, "killed by SIGABRT", seconds=False), "COMPILE002", "killed by SIGABRT"),
        (result(Outcome.OUT_OF_RESOURCES, "held 9.0 GiB", seconds=False), "COMPILE002", "held 9.0 GiB"),
        (result(Outcome.TIMEOUT, "deadline of 300 s passed in compile", seconds=False), "COMPILE003", "after 300 s"),
        (result(local_bytes=136), "COMPILE004", "keeps 136 bytes per thread in local memory, at 168 registers"),
        (result(smem_bytes=232449), "COMPILE005", "asks for 232449 bytes of shared memory; sm_90 has 232448"),
        (result(smem_bytes=232448), None, ""),
    ],
)
def test_result_becomes_a_finding(loaded, kernel, found, code, part):
    findings = list(judge(loaded, kernel, found, 4))
    assert [each.code for each in findings] == ([code] if code else [])
    for each in findings:
        assert part in each.message
        assert (each.field, each.line, each.column) == ("config.forward", 6, 3)
        assert each.problem == "causal-b1-s1024-h8-d128-bfloat16"


def test_nothing_compiled_is_a_note(kernel):
    assert note_of(kernel, Result(outcome=Outcome.OK)) == "not compiled: fa4 has nothing to compile ahead"
    assert note_of(kernel, result()) == ""


LINE = (
    "compiled: forward causal-b1-s1024-h8-d128-bfloat16 (and 2 more): tile_m=128 tile_n=128 mma_pv_is_rs=True "
    "intra_wg_overlap=True sparse_block=128x128: 168 registers, 0 bytes of local memory, 0 bytes of stack, "
    "197632 bytes of shared memory of 232448, 6.2 s"
)
NOTE = "not compiled: 1 of 5 cases, which have errors"


def rendered(name, loaded, kernel, **more):
    compilation = Compilation((CompiledKernel(kernel, result(**more)),), (NOTE,))
    out = io.StringIO()
    get_renderer(name).render([Report(loaded.path, loaded.profile, (), 4, 4, None, compilation)], out)
    return out.getvalue()


def test_text(loaded, kernel):
    assert rendered("text", loaded, kernel) == f"{loaded.path}: {LINE}\n{loaded.path}: {NOTE}\n"
    assert ", from the cache\n" in rendered("text", loaded, kernel, cached=True)


def test_a_table_of_lengths_leaves_room_for_what_compiling_found(loaded, kernel):
    found = result(Outcome.COMPILE_ERROR, "no")
    (finding,) = judge(loaded, kernel, found, 4)
    compilation = Compilation((CompiledKernel(kernel, found),), (), (finding,))
    out = io.StringIO()
    report = Report(loaded.path, loaded.profile, (finding,), 1, 1, {1024: ()}, compilation)
    get_renderer("text").render([report], out)
    assert out.getvalue().startswith(f"{loaded.path}: 1 of 1 lengths")
    assert out.getvalue().count(": error COMPILE001 ") == 1


def test_github_shows_notices(loaded, kernel):
    assert rendered("github", loaded, kernel).splitlines() == [
        f"::notice file={loaded.path}::{each}" for each in (LINE, NOTE)
    ]


def test_junit_shows_them_below_the_suite(loaded, kernel):
    suite = ET.fromstring(rendered("junit", loaded, kernel)).find("testsuite")
    assert suite.find("system-out").text == f"{LINE}\n{NOTE}"


def test_sarif_has_notifications(loaded, kernel):
    from sarif_kit.validate import validation_errors

    document = json.loads(rendered("sarif", loaded, kernel))
    assert validation_errors(document) == []
    (invocation,) = document["runs"][0]["invocations"]
    assert [each["message"]["text"] for each in invocation["toolExecutionNotifications"]] == [LINE, NOTE]


def test_json_has_the_numbers(loaded, kernel):
    document = json.loads(rendered("json", loaded, kernel))
    (compiled,) = document["compiled"]
    assert compiled["resources"] == FITS
    assert (compiled["problems"], compiled["sparse_block"], compiled["cached"]) == (3, [128, 128], False)
    assert document["notes"] == [{"path": str(loaded.path), "note": NOTE}]


def test_local_memory_costs_time_as_the_page_says():
    """In the sweeps that were recorded on an H200."""
    ran = spilled = 0
    nearest = 9.0
    for path in sorted(JOURNALS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        results = [
            (each["result"]["timing"]["median_us"], each["result"]["compiled"]["resources"].get("local_bytes", 0))
            for each in records
            if each["record"] == "outcome" and each["result"]["outcome"] == "ok"
        ]
        best = min(median for median, _ in results)
        slow = [median / best for median, local_bytes in results if local_bytes]
        ran, spilled = ran + len(results), spilled + len(slow)
        nearest = min([nearest, *slow])
    page = " ".join(kernel_spills.page.split())
    assert f"Of {ran} fa4 candidates that ran on an H200, {spilled} had local memory" in page
    assert f"took {nearest:.2f} times as long as the best of its sweep" in page
