import pytest
from pydantic import ValidationError

from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.families import family_names, get_family
from attnctl_kernels.rule import check

BLOCKS = get_family("blocks")


def make_case(seqlen_q=1024, seqlen_k=1024, *, config=None, sparse_block=None, mask=None, pass_name="forward"):
    problem = Problem(
        batch_size=1,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        num_heads_q=4,
        num_heads_kv=4,
        head_dim=64,
        head_dim_v=64,
        dtype="float32",
        mask=mask or Mask(),
    )
    config = config or BLOCKS.default_config(problem, pass_name, None, sparse_block)
    return Case(
        family="blocks",
        version="1",
        arch=None,
        problem=problem,
        pass_name=pass_name,
        config=config,
        sparse_block=sparse_block,
    )


def codes(case):
    return [rule.code for rule, _ in check(case, BLOCKS.rules())]


def test_the_family_is_found():
    assert "blocks" in family_names()
    assert [rule.code for rule in BLOCKS.rules()] == ["BLOCKS-001", "BLOCKS-002", "BLOCKS-003", "BLOCKS-004"]
    assert all(rule.page.strip() for rule in BLOCKS.rules())


@pytest.mark.parametrize(
    ("length", "sizes"),
    [
        (1, (16,)),
        (16, (16,)),
        (17, (16, 32)),
        (256, (16, 32, 64, 128, 256)),
        (257, (16, 32, 64, 128, 256, 512)),
        (100_000, (16, 32, 64, 128, 256, 512)),
    ],
)
def test_space_ends_with_the_first_size_that_holds_the_sequence(length, sizes):
    case = make_case(length, 1024)
    assert BLOCKS.space(case.problem, "forward", None) == {"block_q": sizes, "block_kv": (16, 32, 64, 128, 256, 512)}


@pytest.mark.parametrize(
    ("lengths", "sparse_block", "default"),
    [
        ((1024, 1024), None, (64, 64)),
        ((20, 1024), None, (32, 64)),
        ((1024, 1024), (96, 128), (32, 64)),
        ((1024, 1024), (16, 48), (16, 16)),
    ],
)
def test_default_keeps_every_rule(lengths, sparse_block, default):
    case = make_case(*lengths, sparse_block=sparse_block)
    assert tuple(case.config.values()) == default
    assert codes(case) == []


def test_every_config_of_the_space_keeps_every_rule():
    for length in (1, 16, 100, 1000, 8192):
        space = BLOCKS.space(make_case(length, length).problem, "forward", None)
        for block_q in space["block_q"]:
            for block_kv in space["block_kv"]:
                case = make_case(length, length, config={"block_q": block_q, "block_kv": block_kv})
                assert codes(case) == []


def test_fixes_of_a_sparse_block_keep_every_rule():
    case = make_case(config={"block_q": 64, "block_kv": 96}, sparse_block=(100, 96))
    ((rule, violation),) = check(case, BLOCKS.rules())
    assert rule.code == "BLOCKS-003"
    assert violation.message == "sparse_block=[100, 96]: 100 is not a multiple of block_q=64"
    assert [fix.value for fix in violation.fixes] == [(64, 96), (128, 96)]
    for fix in violation.fixes:
        assert codes(make_case(config=case.config, sparse_block=fix.value)) == []


def test_a_sparse_block_smaller_than_the_tile_has_one_fix():
    case = make_case(config={"block_q": 64, "block_kv": 64}, sparse_block=(32, 32))
    ((_, violation),) = check(case, BLOCKS.rules())
    assert violation.message.endswith("32 is not a multiple of block_q=64, 32 is not a multiple of block_kv=64")
    assert [fix.value for fix in violation.fixes] == [(64, 64)]


@pytest.mark.parametrize("value", [True, "64", 64.0])
def test_parameters_are_whole_numbers(value):
    with pytest.raises(ValidationError):
        BLOCKS.config_model("forward")(block_q=value)


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_predicted_cost_follows_the_visited_tiles(pass_name):
    def cost(config, mask):
        case = make_case(mask=mask, pass_name=pass_name, config=dict(zip(("block_q", "block_kv"), config, strict=True)))
        return BLOCKS.predicted_cost(case)

    band = Mask(pattern="document", document_len=128)
    assert cost((128, 128), Mask()) == 8 * cost((128, 128), band)  # 64 tiles and 8
    assert cost((512, 512), band) > 2 * cost((128, 128), band)  # mostly hidden elements
    assert cost((16, 16), band) > 2 * cost((128, 128), band)  # mostly calls


def test_cost_of_a_sparse_block_counts_its_tiles():
    mask = Mask(pattern="document", document_len=64)
    config = {"block_q": 64, "block_kv": 64}
    coarse = make_case(mask=mask, config=config, sparse_block=(128, 128))
    assert BLOCKS.predicted_cost(coarse) == 2 * BLOCKS.predicted_cost(make_case(mask=mask, config=config))
