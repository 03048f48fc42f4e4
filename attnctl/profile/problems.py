"""From a profile to what runs: problems, tasks (a problem and a pass) and cases (a task and its config)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnctl.profile.document import FieldPath
from attnctl.profile.mask_source import mask_of
from attnctl.profile.model import LayoutSection, Profile
from attnctl_kernels.contract import Case, Config, Family, Layout, PassName, Problem, SparseBlock, Task
from attnctl_kernels.families import get_family


def problems(profile: Profile, seq_lens: Sequence[int] = ()) -> tuple[Problem, ...]:
    """One problem per length, in the order of the file; ``seq_lens`` replaces all lengths."""
    section = profile.problem
    return tuple(
        Problem(
            batch_size=section.batch_size,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            num_heads_q=section.num_heads_q,
            num_heads_kv=section.num_heads_kv or section.num_heads_q,
            head_dim=section.head_dim,
            head_dim_v=section.head_dim_v or section.head_dim,
            dtype=section.dtype,
            mask=mask_of(profile.mask, seqlen_k),
            softmax_scale=section.softmax_scale,
            dtype_kv=section.dtype_kv,
            batch_size_kv=section.batch_size_kv,
            varlen=section.varlen,
        )
        for seqlen_q, seqlen_k in _lengths(profile, seq_lens)
    )


def tasks(profile: Profile, seq_lens: Sequence[int] = ()) -> tuple[Task, ...]:
    """Every problem with every pass."""
    version = profile.version or get_family(profile.family).versions[-1]
    return tuple(
        Task(family=profile.family, version=version, arch=profile.arch, pass_name=pass_name, problem=problem)
        for problem in problems(profile, seq_lens)
        for pass_name in profile.passes
    )


def cases(profile: Profile, seq_lens: Sequence[int] = ()) -> Iterator[Case]:
    """What the rules look at, for every task: the profile's config, completed by the kernel's defaults."""
    for problem in problems(profile, seq_lens):
        yield from cases_of(profile, problem)


def cases_of(profile: Profile, problem: Problem) -> Iterator[Case]:
    """The cases of one problem, one per pass."""
    family = get_family(profile.family)
    written = {name: written_config(profile, name) for name in profile.passes}
    configs: dict[PassName, Config] = {}
    sparse_blocks: dict[PassName, SparseBlock | None] = {}
    for name in profile.passes:
        sparse_block = profile.sparse_block_of(name)
        default = family.default_config(problem, name, profile.arch, sparse_block)
        configs[name] = {**default, **written[name]}
        sparse_blocks[name] = sparse_block or _own_block(family, problem, name, configs[name])
    for name in profile.passes:
        yield _case(profile, family, problem, name, configs=configs, sparse_blocks=sparse_blocks, given=written[name])


def _own_block(family: Family, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
    """The block that the config itself runs at. A tile of 0 rows, which has a finding of its own, makes none."""
    block = family.sparse_block(problem, pass_name, config)
    return block if block is not None and min(block) > 0 else None


def drafts_of(profile: Profile, problem: Problem) -> Iterator[Case]:
    """Cases without defaults: for an arch or a version that the family may not know, so that it is not asked."""
    family = get_family(profile.family)
    for name in profile.passes:
        written = written_config(profile, name)
        sparse_blocks = {name: profile.sparse_block_of(name)}
        yield _case(profile, family, problem, name, configs={name: written}, sparse_blocks=sparse_blocks, given=written)


def written_config(profile: Profile, pass_name: PassName) -> dict[str, Any]:
    """The parameters that the profile itself gives for a pass; a null leaves the choice to the kernel."""
    section = profile.config
    if not get_family(profile.family).flat_config:
        section = section.get(pass_name, {})
    return {name: value for name, value in section.items() if value is not None}


def length_fault(section: Mapping[str, Any]) -> tuple[FieldPath, str, str] | None:
    """Why these lengths make no problems: field, fault, advice; None: they do. ``section`` is as written."""
    seq_len, seqlen_q, seqlen_k = (section.get(name) for name in ("seq_len", "seqlen_q", "seqlen_k"))
    if seq_len is not None and (seqlen_q is not None or seqlen_k is not None):
        other = "seqlen_q" if seqlen_q is not None else "seqlen_k"
        advice = "keep `seq_len`, or use `seqlen_q` and `seqlen_k`"
        return ("problem", other), f"`seq_len` and `{other}` are both given", advice
    if seq_len is None and seqlen_q is None:
        if seqlen_k is None:
            return ("problem", "seq_len"), "no sequence length is given", "add, for example, `seq_len: 4096`"
        return (
            ("problem", "seqlen_k"),
            "`seqlen_k` is given without `seqlen_q`",
            "add `seqlen_q`, or rename it to `seq_len`",
        )
    if isinstance(seqlen_q, tuple) and isinstance(seqlen_k, tuple) and len(seqlen_q) != len(seqlen_k) > 0:
        fault = f"`seqlen_q` lists {len(seqlen_q)} lengths and `seqlen_k` {len(seqlen_k)}"
        return ("problem", "seqlen_k"), fault, "list them in pairs, or give one of the two as a single length"
    return None


def _lengths(profile: Profile, seq_lens: Sequence[int]) -> Iterator[tuple[int, int]]:
    if seq_lens:
        yield from ((length, length) for length in seq_lens)
        return
    section = profile.problem
    queries = section.seq_len or section.seqlen_q or ()
    keys = section.seqlen_k or queries
    count = max(len(queries), len(keys))
    queries, keys = (each * count if len(each) == 1 else each for each in (queries, keys))
    yield from zip(queries, keys, strict=True)


def _case(
    profile: Profile,
    family: Family,
    problem: Problem,
    pass_name: PassName,
    *,
    configs: Mapping[PassName, Config],
    sparse_blocks: Mapping[PassName, SparseBlock | None],
    given: Config,
) -> Case:
    return Case(
        family=profile.family,
        version=profile.version or family.versions[-1],
        arch=profile.arch,
        problem=problem,
        pass_name=pass_name,
        config=configs[pass_name],
        sparse_block=sparse_blocks[pass_name],
        given=frozenset(given) | ({"sparse_block"} if profile.sparse_block_of(pass_name) else frozenset()),
        passes=profile.passes,
        configs=configs,
        sparse_blocks=sparse_blocks,
        layout=_layout(profile.layout),
    )


def _layout(section: LayoutSection | None) -> Layout | None:
    """What the profile states, and what it leaves out as the file of arrays has it."""
    if section is None:
        return None
    stated = section.model_dump(exclude={"path"}, exclude_none=True)
    if section.path is None:
        return Layout(**stated)
    from attnctl.layouts.read import read_arrays  # noqa: PLC0415 - only where there is a file

    arrays = read_arrays(Path(section.path))
    return Layout(**{**arrays.facts(), **stated}, arrays=arrays)
