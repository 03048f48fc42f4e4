"""Rules of tiles, splits, schedules and registers against the functions of flash-attn-4's own `config.py`."""

from dataclasses import replace

import pytest
from fa4_cases import THOROUGH, codes, make_case, make_problem
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Mask
from attnctl_kernels.fa4.call import Call

pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")
if launch.missing_packages():
    pytest.skip(f"{launch.missing_packages()[0]} is not installed", allow_module_level=True)

NUM_SMS = 148
ARCHES = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "sm_103": 103, "sm_120": 120}
# What each message of `validate_fwd_config` is here; sparse blocks are checked by other functions.
MESSAGES = {
    "Tile dimensions": {"FA4-F002", "FA4-F005", "FA4-F006"},
    "num_splits must be in": {"FA4-F003"},
    "does not support SplitKV": {"FA4-F003"},
    "seqlen_k_per_split": {"FA4-F004", "FA4-F009"},
    "forward does not support paged KV": {"FA4-F015"},
    "SM90 tile_m must be": {"FA4-F005"},
    "MMA flags": {"FA4-F009"},
    "requires q_stage=1": {"FA4-F009"},
    "does not support SM100 scheduler options": {"FA4-F009"},
    "SM100 forward requires tile_m=128": {"FA4-F010"},
    "SM100 q_stage must be 1 or 2": {"FA4-F010"},
    "TMEM columns": {"FA4-F011"},
    "Head-dim 192/128": {"FA4-F013"},
    "SplitKV does not support padded": {"FA4-F014", "FA4-E002"},
    "Diff-head SplitKV": {"FA4-F014"},
    "Non-TMA paged KV": {"FA4-F015"},
    "CLC is not supported": {"FA4-F016"},
    "Static persistent": {"FA4-F017"},
    "TMA O is not": {"FA4-F018"},
    "S ping-pong": {"FA4-F019"},
    "2CTA instructions": {"FA4-F020"},
    "registers of type": {"FA4-R001"},
    "Register counts": {"FA4-R002"},
    "SM90 MMA registers": {"FA4-R003"},
    "SM100 softmax registers": {"FA4-R004"},
    "Register split": {"FA4-R003", "FA4-R004"},
}
SWITCHES = ("use_clc", "static_persistent", "use_tma_o", "use_s_ping_pong", "use_2cta")
ELSEWHERE = {"FA4-E001", "FA4-E002", "FA4-E003", "FA4-E007"}  # what interface.py checks

bits = st.booleans()
counts = st.integers(16, 264) | st.sampled_from((24, 48, 80, 128, 160, 184, 192, 240, 256))


@st.composite
def cases(draw):
    """A problem without block lists, and a config in which every choice is made."""
    arch = draw(st.sampled_from(sorted(ARCHES)))
    head_dims = draw(st.sampled_from(((64, 64), (72, 72), (128, 128), (192, 128), (256, 256), (96, 64))))
    heads = draw(st.sampled_from(((8, 8), (8, 1), (12, 2), (6, 6))))
    lengths = st.lists(st.sampled_from(("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")), unique=True)
    problem = make_problem(
        draw(st.sampled_from((1, 60, 128, 1000, 8192))),
        draw(st.sampled_from((128, 1000, 8192))),
        heads=heads[0],
        heads_kv=heads[1],
        head_dim=head_dims[0],
        head_dim_v=head_dims[1],
        batch_size=draw(st.sampled_from((1, 30))),
        mask=Mask(),
        varlen=tuple(draw(lengths)) or None,
    )
    tiles = st.sampled_from((16, 32, 64, 96, 100, 128, 160, 176, 192, 256))
    config = {
        "tile_m": draw(st.sampled_from((64, 96, 128, 192, 256))),
        "tile_n": draw(tiles),
        "mma_pv_is_rs": arch == "sm_90" or draw(st.sampled_from((False, False, True))),
        "intra_wg_overlap": arch == "sm_90",
        "q_stage": draw(st.sampled_from((1, 1, 2, 3))),
        "num_splits": draw(st.sampled_from((1, 1, 1, 2, 8, 300))),
        "pack_gqa": heads[0] != heads[1] and draw(bits),
        **{name: draw(st.sampled_from((False, False, True))) for name in SWITCHES},
    }
    optional = {
        "page_size": st.sampled_from((64, 128)),
        "seqlen_k_per_split": st.sampled_from((1000, 1024, 0)),
        "causal": st.just(True),
        "window_left": st.sampled_from((0, 100)),
        "window_right": st.sampled_from((0, 50)),
        "score_mod": bits,
        "mask_mod": bits,
        "learnable_sink": bits,
        "tile_count_semaphore": bits,
    }
    for name, values in optional.items():
        if draw(st.integers(0, 3)) == 0:
            config[name] = draw(values)
    if arch not in ("sm_100", "sm_103"):  # refused here, and ignored by the other kernels
        config.pop("seqlen_k_per_split", None)
    return make_case(problem, arch=arch, **config)


def of_upstream(case, registers=None):
    """The case in the words of `config.py`."""
    from flash_attn.cute import config

    problem, given, call = case.problem, case.config, Call(case)
    causal, local = call.causal_and_local
    forward = config.FwdConfig(
        device_capacity=ARCHES[case.arch] // 10,
        tile_m=given["tile_m"],
        tile_n=given["tile_n"],
        mma_pv_is_rs=given["mma_pv_is_rs"],
        intra_wg_overlap=given["intra_wg_overlap"],
        q_stage=given["q_stage"],
        use_clc_scheduler=given["use_clc"],
        is_static_persistent=given["static_persistent"],
        use_tma_o=given["use_tma_o"],
        use_s_ping_pong=given["use_s_ping_pong"],
        num_splits=given["num_splits"],
        use_2cta_instrs=given["use_2cta"],
        registers=registers,
    )
    inputs = config.FwdHeuristicInputs(
        device_arch=ARCHES[case.arch],
        num_sms=NUM_SMS,
        dtype="bfloat16",
        head_dim=problem.head_dim,
        head_dim_v=problem.head_dim_v,
        num_heads=problem.num_heads_q,
        num_heads_kv=problem.num_heads_kv,
        batch_size=problem.batch_size,
        total_q=problem.batch_size * problem.seqlen_q,
        total_k=problem.batch_size * problem.seqlen_k,
        max_seqlen_q=problem.seqlen_q,
        max_seqlen_k=problem.seqlen_k,
        seqlen_k_per_split=given.get("seqlen_k_per_split"),
        causal=causal,
        local=local,
        window_size_left=given.get("window_left"),
        window_size_right=0 if given.get("causal") else given.get("window_right"),
        has_tile_count_semaphore=bool(given.get("tile_count_semaphore")),
        pack_gqa=given["pack_gqa"],
        page_size=given.get("page_size"),
        has_score_mod=bool(given.get("score_mod")),
        has_mask_mod=bool(given.get("mask_mod")),
        has_learnable_sink=bool(given.get("learnable_sink")),
        **{f"has_{name}": name in call.varlen for name in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")},
    )
    return config, forward, inputs


def refusals(config, forward, inputs):
    try:
        config.validate_fwd_config(forward, inputs)
    except ValueError as error:
        return str(error)
    return None


def ours(case):
    return codes(case) & set().union(*MESSAGES.values()) - ELSEWHERE


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=250 * THOROUGH)
@given(cases())
def test_same_verdict_as_validate_fwd_config(case):
    case = replace(case, config={**case.config, "FLASH_ATTENTION_NUM_SMS": NUM_SMS})
    config, forward, inputs = of_upstream(case)
    if forward.tile_m > 0 and forward.tile_m % 64 == 0:  # the split is another test's
        forward = replace(
            forward,
            registers=config.select_registers(
                inputs, tile_m=min(forward.tile_m, 192), tile_n=forward.tile_n, q_stage=1, use_2cta_instrs=False
            ),
        )
    refused = refusals(config, forward, inputs)
    assume(refused is None or "egister" not in refused)
    found = ours(case)
    if refused is None:
        assert not found - {"FA4-F006"}  # 100 and 320 columns pass config.py
    else:
        (expected,) = [codes for part, codes in MESSAGES.items() if part in refused]
        assert codes(case) & expected, refused


@settings(deadline=None, max_examples=150 * THOROUGH)
@given(st.sampled_from((64, 128, 192)), counts, counts)
def test_same_verdict_on_hopper_registers(tile_m, mma, producer):
    from flash_attn.cute import config

    case = make_case(make_problem(mask=Mask()), tile_m=tile_m, mma_registers=mma, producer_registers=producer)
    forward = config.FwdConfig(
        9, tile_m, 128, True, True, 1, *[False] * 4, 1, False, config.Sm90Registers(mma, producer)
    )
    assert bool(codes(case) & {"FA4-R002", "FA4-R003"}) == _refused(config, forward)


@settings(deadline=None, max_examples=150 * THOROUGH)
@given(st.sampled_from((1, 2)), counts, counts, counts)
def test_same_verdict_on_blackwell_registers(q_stage, softmax, correction, other):
    from flash_attn.cute import config

    split = {"softmax_registers": softmax, "correction_registers": correction, "other_registers": other}
    case = make_case(make_problem(mask=Mask()), arch="sm_100", q_stage=q_stage, **split)
    registers = config.Sm100Registers(softmax, correction, other)
    forward = config.FwdConfig(10, 128, 128, False, False, q_stage, *[False] * 4, 1, False, registers)
    assert bool(codes(case) & {"FA4-R002", "FA4-R004"}) == _refused(config, forward)


def _refused(config, forward):
    try:
        config.validate_registers(forward)
    except ValueError:
        return True
    return False


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    max_examples=120 * THOROUGH,
)
@given(cases())
def test_what_is_left_out_is_chosen_as_upstream_chooses(case):
    """`select_fwd_config`, for what it may choose itself."""
    assume(case.arch in ("sm_100", "sm_103"))
    assume(case.problem.head_dim == case.problem.head_dim_v)
    kept = {name: value for name, value in case.config.items() if name not in (*SWITCHES, "q_stage", "num_splits")}
    kept |= {"tile_m": 128, "tile_n": 128, "num_splits": 0, "FLASH_ATTENTION_NUM_SMS": NUM_SMS}
    kept.pop("seqlen_k_per_split", None)
    config, _, inputs = of_upstream(case)
    call = Call(replace(case, config=kept))
    inputs = inputs._replace(seqlen_k_per_split=None)
    try:
        chosen = config.select_fwd_config(inputs)
    except ValueError:
        assume(False)
    assert (call.q_stage, call.num_splits, call.pairs) == (chosen.q_stage, chosen.num_splits, chosen.use_2cta_instrs)
    assert (call.can_stay, call.can_tma_o) == (chosen.is_static_persistent, chosen.use_tma_o)
    assert call.pack_gqa == inputs.pack_gqa
    assert Call(replace(case, config={**kept, "pack_gqa": None})).pack_gqa == config.default_pack_gqa(
        inputs._replace(requested_num_splits=None)
    )
