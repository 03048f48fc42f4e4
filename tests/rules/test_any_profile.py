"""Whatever stands in a profile: findings, never an exception; and a profile that passes makes cases."""

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.profile.load import load
from attnctl.profile.problems import cases, tasks
from attnctl.profile.schema import built_in_families
from attnctl.rules.check import check_profile
from attnctl_kernels.rule import Severity

SIZES = st.sampled_from([-1, 0, 1, 2, 3, 7, 16, 64, 96, 100, 128, 192, 256, 1000, 1024, 4096, 65536, 2**40])
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | SIZES
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["forward", "dense", "sm_90"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abkq", max_size=2), inner, max_size=3),
    max_leaves=6,
)
PARAMETERS = st.sampled_from(
    [
        "tile_m",
        "tile_n",
        "block_q",
        "block_kv",
        "BLOCK_M",
        "num_stages",
        "compute_wgs_bwd",
        "block_q_dq",
        "sparse_block",
    ]
)
MASKS = st.sampled_from(["dense", "causal", "sliding_window", "document", "prefix_lm", "history_candidate", "blocks"])


def mapping(**fields):
    """Some of the fields, each right in form or anything at all."""
    return st.fixed_dictionaries(
        {}, optional={name: st.one_of(good, good, good, ANYTHING) for name, good in fields.items()}
    )


PROFILES = st.fixed_dictionaries(
    {
        "family": st.sampled_from(built_in_families()),
        "problem": st.fixed_dictionaries(
            {
                "seq_len": SIZES | st.lists(SIZES, max_size=3),
                "num_heads_q": SIZES,
                "head_dim": SIZES,
            },
            optional={
                "num_heads_kv": SIZES,
                "head_dim_v": SIZES,
                "batch_size": SIZES,
                "dtype": st.sampled_from(["float16", "bfloat16", "float32", "fp8"]),
            },
        ),
    },
    optional={
        "arch": st.sampled_from(["sm_80", "sm_90", "sm_100", "sm_120", "sm_91", "hopper"]) | ANYTHING,
        "version": st.text("0123456789.b", max_size=8),
        "passes": st.lists(st.sampled_from(["forward", "backward"]), max_size=3) | ANYTHING,
        "mask": mapping(
            pattern=MASKS,
            history_len=SIZES,
            window=SIZES,
            prefix_len=SIZES,
            document_len=SIZES,
            document_lens=st.lists(SIZES, max_size=4),
            causal=st.booleans(),
            block_size=st.tuples(SIZES, SIZES).map(list),
            rows=st.lists(st.lists(SIZES, max_size=3), max_size=4),
        ),
        "sparse_block": st.tuples(SIZES, SIZES).map(list) | ANYTHING,
        "layout": mapping(
            path=st.sampled_from(["p.yaml", "gone.npz", "."]),
            num_blocks=SIZES,
            seq_len=SIZES,
            seqlen_q=SIZES,
            seqlen_k=SIZES,
        ),
        "config": mapping(
            forward=st.dictionaries(PARAMETERS, SIZES, max_size=4),
            backward=st.dictionaries(PARAMETERS, SIZES, max_size=4),
        )
        | st.dictionaries(PARAMETERS, SIZES, max_size=4),
        "search": mapping(forward=st.dictionaries(PARAMETERS, st.lists(SIZES, max_size=3), max_size=3)),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(PROFILES)
def test_any_profile(tmp_path, data):
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    report = check_profile(path)
    lines = path.read_text(encoding="utf-8").count("\n") + 1
    for finding in report.findings:
        assert 1 <= finding.line <= lines
        assert finding.column >= 1
        assert finding.message
        assert finding.fix
    if report.profile is None:
        assert report.errors
    elif not any(each.severity is Severity.ERROR for each in report.findings):
        assert len(list(cases(load(path).profile))) == report.case_count == len(tasks(report.profile))
