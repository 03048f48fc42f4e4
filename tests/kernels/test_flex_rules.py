"""FlexAttention: users' reports, the tail of the last block walked in Python, and every fix of every rule."""

import pytest
from flex_cases import CAUSAL, FAMILY, applied, case_of, errors, found
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Mask
from attnctl_kernels.flex.resources import forward_smem
from attnctl_kernels.flex.tiles import ForwardTile
from attnctl_kernels.rule import check

torch_masks = {"causal": CAUSAL, "dense": Mask(), "window": Mask(pattern="sliding_window", window=200)}


class TestReports:
    """What users of FlexAttention met, and what is said of it now."""

    def test_mask_on_rounded_up_lengths(self):
        lengths = {"seqlen_q": 20000, "seqlen_k": 40000}
        assert errors(case_of(**lengths)) == set()
        assert errors(case_of(**lengths, layout={"num_blocks": 157, **lengths})) == set()
        case = case_of(**lengths, layout={"seqlen_q": 20096, "seqlen_k": 40192})
        messages = [each.message for each in found(case)["FLEX-003"]]
        assert messages == [
            "the mask is built for seqlen_q 20096, the tensors have seqlen_q 20000",
            "the mask is built for seqlen_k 40192, the tensors have seqlen_k 40000",
        ]
        assert errors(case_of(seqlen_q=20, layout={"seqlen_k": 512})) >= {"FLEX-003"}

    def test_block_that_divides_neither_length(self):
        lengths, documents = {"seqlen_q": 300, "seqlen_k": 180}, Mask(pattern="document", document_len=60)
        assert "FLEX-001" in errors(case_of(**lengths, mask=documents, block=(8, 8)))
        assert "FLEX-025" not in errors(case_of(**lengths, mask=documents))
        old = found(case_of(**lengths, mask=documents, version="2.5"))["FLEX-025"]
        assert [each.field for each in old] == ["problem.seqlen_q", "problem.seqlen_k"]
        assert "mask look-ups run out of range" in old[0].message
        assert "FLEX-025" not in errors(case_of(**lengths, mask=CAUSAL, version="2.5"))

    def test_decoding_tile_is_counted_in_packed_rows(self):
        """torch 2.13 compares the packed tile with the block of one head, and so refuses what would fit."""
        short = {"seqlen_q": 100, "seqlen_k": 4096, "num_heads_q": 16, "num_heads_kv": 8}
        assert "FLEX-008" in errors(case_of(**short, block=(128, 128)))
        assert "FLEX-008" in errors(case_of(**short, block=(128, 128), written={"BLOCK_M": 512}))
        assert errors(case_of(**short, block=(128, 128), written={"BLOCK_M": 128})) == set()
        assert errors(case_of(**short, block=(256, 128))) == set()

    def test_groups_that_are_no_power_of_two(self):
        short = {"seqlen_q": 1, "seqlen_k": 4096, "num_heads_q": 12, "num_heads_kv": 2, "head_dim": 16}
        (warning,) = found(case_of(**short))["FLEX-028"]
        assert "power of two" in warning.message
        assert "FLEX-008" in errors(case_of(**short, version="2.5"))
        assert "FLEX-008" in errors(case_of(**short, written={"BACKEND": "TRITON_DECODE"}))

    def test_blocks_that_are_not_square(self):
        case = case_of(seqlen_q=512, seqlen_k=1024, head_dim=256, block=(64, 128))
        assert not found(case)
        assert "FLEX-026" in found(case_of(seqlen_q=512, seqlen_k=1024, head_dim=256, block=(64, 128), version="2.5"))

    @pytest.mark.parametrize(
        ("arch", "tile", "wrong"),
        [
            ("sm_86", (64, 64, 3), True),
            ("sm_86", (128, 32, 2), False),
            ("sm_80", (64, 64, 3), False),
            ("sm_90", (64, 64, 3), False),
        ],
    )
    def test_head_dim_192_on_a_small_gpu(self, arch, tile, wrong):
        written = dict(zip(("BLOCK_M", "BLOCK_N", "num_stages"), tile, strict=True))
        case = case_of(arch=arch, seqlen_q=2048, head_dim=192, head_dim_v=128, written=written)
        assert (errors(case) == {"FLEX-021"}) is wrong
        assert wrong or not {"FLEX-021", "FLEX-022"} & found(case).keys()

    def test_the_default_tile_that_asks_for_too_much(self):
        case = case_of(arch="sm_89", seqlen_q=2048, dtype="float32")
        (violation,) = found(case)["FLEX-021"]
        assert "131072 bytes of 101376" in violation.message
        assert [(each.field, each.value) for each in violation.fixes] == [("config.BLOCK_M", 32)]

    def test_head_dim_filled_with_the_length(self):
        case = case_of(seqlen_q=1024, head_dim=1024, dtype="float32", num_heads_q=1)
        (violation,) = found(case)["FLEX-021"]
        assert "head_dim 1024 is above 256" in violation.message
        assert errors(case_of(seqlen_q=128, head_dim=128)) == set()

    def test_the_estimate_is_what_compilers_asked_for(self):
        mla = case_of(head_dim=192, head_dim_v=128).problem
        assert forward_smem(mla, ForwardTile(64, 64, 3, 4), "sm_86").usual == 139776
        wide = case_of(head_dim=1024, dtype="float32").problem
        assert forward_smem(wide, ForwardTile(32, 16, 3, 4), "sm_80").usual == 395520

    def test_small_tiles_on_hopper(self):
        assert "FLEX-023" in found(case_of(written={"BLOCK_N": 32}))
        assert "FLEX-023" not in found(case_of(arch="sm_100", written={"BLOCK_N": 32}))
        assert "FLEX-023" not in found(case_of(written={"BLOCK_N": 64}))

    def test_mask_for_another_block_than_the_kernels(self):
        assert errors(case_of(seqlen_q=65536, block=(256, 256), written={"BLOCK_M": 64, "BLOCK_N": 64})) == set()
        assert "FLEX-001" in errors(case_of(seqlen_q=65536, block=(96, 96), written={"BLOCK_M": 64, "BLOCK_N": 64}))

    @pytest.mark.parametrize(("block", "wrong"), [((128, 128), True), ((256, 128), False), ((256, 256), False)])
    def test_flash_backend_on_blackwell(self, block, wrong):
        case = case_of(arch="sm_100", seqlen_q=16384, block=block, written={"BACKEND": "FLASH"})
        assert ("FLEX-012" in errors(case)) is wrong


def test_small_blocks_have_no_backward_kernel_on_hopper():
    case = case_of("backward", block=(64, 64))
    (violation,) = found(case)["FLEX-002"]
    assert [each.field for each in violation.fixes] == ["sparse_block", "config.max_autotune"]
    tiles = dict.fromkeys(("bwd_BLOCK_M1", "bwd_BLOCK_N1", "bwd_BLOCK_M2", "bwd_BLOCK_N2"), 64)
    assert errors(case_of("backward", block=(64, 64), written=tiles)) == {"FLEX-002"}
    assert errors(case_of("backward", block=(64, 64), written={"max_autotune": True, **tiles})) == set()


def test_warps_that_are_too_many_or_too_few_for_both_loops_of_the_backward_pass():
    """What mends one loop alone is no fix."""
    short = found(case_of(pass_name="backward", head_dim=64, written={"BLOCK_N1": 64, "BLOCK_M2": 64, "num_warps": 8}))
    assert [(fix.field, fix.value) for fix in short["FLEX-030"][0].fixes] == [("config.num_warps", 4)]
    wide = {"BLOCK_M1": 64, "BLOCK_N1": 64, "BLOCK_M2": 256, "BLOCK_N2": 16, "num_warps": 4}
    (full,) = found(case_of(pass_name="backward", head_dim=256, block=(256, 128), written=wide))["FLEX-031"]
    assert [(fix.field, fix.value) for fix in full.fixes] == [("config.num_warps", 16)]
    vast = {**wide, "num_warps": 32, "BLOCK_N1": 1024, "BLOCK_M2": 1024}
    (vain,) = found(case_of(pass_name="backward", head_dim=512, block=(1024, 1024), written=vast))["FLEX-031"]
    assert vain.fixes == ()
    assert vain.advice == "start from tiles of 64 in all directions"


def test_prefixed_options_win():
    assert errors(case_of(block=(64, 64), written={"BLOCK_M": 128, "fwd_BLOCK_M": 64})) == set()
    assert errors(case_of(block=(64, 64), written={"BLOCK_M": 64, "fwd_BLOCK_M": 128})) == {"FLEX-001"}


def test_a_profile_without_an_arch_is_one_for_the_cpu():
    assert errors(case_of(arch=None)) == set()
    assert errors(case_of("backward", arch=None)) == {"FLEX-015"}


def tiles_behind_the_end(seqlen, block, tile, mask, *, transposed=False):
    """First rows of the tiles that the kernel's loop visits at or behind the end, for some row of the lists."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention.flex_attention import create_block_mask

    from attnctl_kernels.masks import pattern

    shape = pattern(mask, seqlen, seqlen)
    lists = create_block_mask(
        lambda b, h, q, k: shape.sees(q, k, torch.as_tensor) & (k >= 0), 1, 1, seqlen, seqlen, "cpu", block
    )
    names = ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")
    names = names if transposed else tuple(name.replace("q_", "kv_") for name in names)
    counts, indices, full_counts, full_indices = (getattr(lists, name)[0, 0].tolist() for name in names)
    per_block, behind = block // tile, set()
    for number, listed in [*zip(counts, indices, strict=True), *zip(full_counts, full_indices, strict=True)]:
        for step in range(min(number * per_block, max(-(-seqlen // tile), 1))):
            start = listed[step // per_block] * block + step % per_block * tile
            if start + tile > seqlen:
                behind.add(start)
    return behind


@pytest.mark.parametrize("mask", torch_masks.values(), ids=torch_masks)
@pytest.mark.parametrize(
    ("seqlen", "block"), [(384, 256), (640, 256), (512, 256), (384, 128), (128, 256), (1152, 512), (1024, 512)]
)
def test_tails_behind_the_end_are_visited_where_the_rule_says(mask, seqlen, block):
    """128 divides these lengths, so that the kernels mask nothing: a tile behind the end that is visited counts."""
    forward = case_of(seqlen_q=seqlen, mask=mask, block=(block, block), written={"BLOCK_M": 128, "BLOCK_N": 64})
    assert ("FLEX-019" in errors(forward)) is bool(tiles_behind_the_end(seqlen, block, 64, mask))
    backward = case_of("backward", seqlen_q=seqlen, mask=mask, block=(block, block))
    fields = {each.field for each in found(backward).get("FLEX-019", ())}
    assert ("problem.seqlen_q" in fields) is bool(tiles_behind_the_end(seqlen, block, 64, mask, transposed=True))


@st.composite
def cases(draw):
    pass_name = draw(st.sampled_from(["forward", "backward"]))
    version = draw(st.sampled_from(["2.13", "2.13", "2.5"]))
    tile = st.sampled_from([8, 16, 32, 64, 96, 128, 256])
    options = dict.fromkeys(("BLOCK_M", "BLOCK_N", "fwd_BLOCK_M", "fwd_BLOCK_N"), tile)
    options |= dict.fromkeys((f"bwd_BLOCK_{name}" for name in ("M1", "N1", "M2", "N2")), tile)
    options |= {"num_warps": st.sampled_from([3, 4, 8, 64]), "num_stages": st.integers(0, 5)}
    options["BACKEND"] = st.sampled_from(["AUTO", "TRITON", "FLASH", "FLASH", "FLASH", "TRITON_DECODE", "cuda"])
    switches = ("max_autotune", "dynamic", "compiled", "return_lse", "return_max_scores", "deterministic")
    switches += ("FORCE_USE_FLEX_ATTENTION", "OUTPUT_MAX", "captured_scalars", "needs_lse_grad", "sliced_mask")
    switches += ("separate_full_blocks", "compute_dq_write_order", "captured_tensors_need_grad", "enable_gqa")
    options |= dict.fromkeys(switches, st.booleans())
    options |= {"device": st.sampled_from(["cuda", "cpu", "mps"]), "mask_device": st.sampled_from(["cuda", "cpu"])}
    names = draw(st.sets(st.sampled_from(sorted(options)), max_size=6))
    side = st.sampled_from([16, 48, 64, 80, 96, 128, 192, 256, 384])
    head_dim = draw(st.sampled_from([8, 64, 96, 128, 192, 256, 512]))
    layout = st.fixed_dictionaries(
        {},
        optional={
            "seqlen_q": st.sampled_from([128, 384, 4096]),
            "seqlen_k": st.sampled_from([384, 4096]),
            "batch_size": st.integers(1, 4),
            "num_heads": st.integers(1, 12),
        },
    )
    return case_of(
        pass_name,
        arch=draw(st.sampled_from(["sm_80", "sm_86", "sm_90", "sm_100", "sm_120", None])),
        version=version,
        mask=draw(st.sampled_from([*torch_masks.values(), Mask(pattern="document", document_len=100)])),
        block=draw(st.one_of(st.none(), st.tuples(side, side))),
        written={name: draw(options[name]) for name in sorted(names)},
        layout=draw(st.one_of(st.none(), layout)),
        seqlen_q=draw(st.sampled_from([1, 100, 128, 300, 384, 4096])),
        seqlen_k=draw(st.sampled_from([128, 384, 1000, 4096])),
        batch_size=draw(st.integers(1, 4)),
        batch_size_kv=draw(st.sampled_from([None, None, 1, 2])),
        num_heads_q=draw(st.integers(1, 12)),
        num_heads_kv=draw(st.integers(1, 6)),
        head_dim=head_dim,
        head_dim_v=draw(st.sampled_from([head_dim, 64, 128])),
        dtype=draw(st.sampled_from(["bfloat16", "float32"])),
        dtype_kv=draw(st.sampled_from([None, None, "float16"])),
    )


@settings(deadline=None, max_examples=500)
@given(cases())
def test_every_fix_makes_its_rule_pass(case):
    for rule, violation in check(case, FAMILY.rules()):
        assert violation.fixes or violation.advice, (rule.code, violation.message)
        for fix in violation.fixes:
            mended = applied(case, fix)
            left = [each.field for _, each in check(mended, [rule])] if mended and rule.applies(mended) else []
            assert violation.field not in left, f"{rule.code}: {violation.message}, {fix}"


@settings(deadline=None, max_examples=150)
@given(cases())
def test_resources_agree_with_the_rules(case):
    over = any(each.headroom < 0 for each in FAMILY.resources(case))
    assert over == bool(found(case).keys() & {"FLEX-021", "FLEX-022"})


@pytest.mark.parametrize("window", [100, 200, 255, 256, 300, 512, 1000])
def test_promise_of_contiguous_blocks_against_the_lists(window):
    """The lists of `create_block_mask` at 2048 tokens in blocks of 128."""
    pytest.importorskip("torch")
    from torch.nn.attention.flex_attention import create_block_mask

    lists = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), 1, 1, 2048, 2048, "cpu")
    gaps = any(
        listed[step + 1] - listed[step] != 1
        for counts, indices in (
            (lists.kv_num_blocks, lists.kv_indices),
            (lists.full_kv_num_blocks, lists.full_kv_indices),
        )
        for count, listed in zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)
        for step in range(count - 1)
    )
    case = case_of(
        seqlen_q=2048, mask=Mask(pattern="sliding_window", window=window), written={"BLOCKS_ARE_CONTIGUOUS": True}
    )
    assert ("FLEX-029" in errors(case)) is gaps
