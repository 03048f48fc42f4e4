"""What a sweep found, for people: what was dropped, what was tried, who won and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.gpu.protocol import Result, Timing
from attnctl.report._terminal import columns, one_line
from attnctl.rules.wording import fix_sentence
from attnctl.tune.decide import describe
from attnctl.tune.finals import ranked
from attnctl.tune.journal import OutcomeRecord
from attnctl.tune.outcome import Status, TaskResult
from attnctl.tune.space import Drop, Space
from attnctl.words import counted
from attnctl_kernels.contract import Candidate, Outcome

SHOWN = 10
_REASON_WIDTH = 160


def dry_run(space: Space, most: int) -> Iterator[str]:
    """What a sweep would measure, without a device; ``most`` of the candidates at most."""
    case, count = space.case, len(space.candidates)
    limit = f", at most {most} of them" if most < count else ""
    yield f"{case.problem.slug} {case.pass_name}: {space.size} in the space, {count} to measure{limit}"
    yield from dropped(space)
    yield "order, cheapest predicted first:"
    names, rows = _parameters(space.candidates)
    table = [["", *names]]
    table += [[_label(space, each, ordinal=False), *row] for each, row in zip(space.candidates, rows, strict=True)]
    yield from _fitted(table, names)


def summary(result: TaskResult) -> Iterator[str]:
    """Everything about one task's tuning."""
    environment = result.environment
    several = f", {result.costs.devices} devices" if result.costs.devices > 1 else ""
    yield f"{result.task.problem.slug} {result.task.pass_name} on {environment.device_name}{several}"
    tried = [each for each in result.outcomes if each.result.outcome is not Outcome.SKIPPED]
    yield f"{result.space.size} in the space, {len(result.space.drops)} dropped by rules, {len(tried)} tried"
    if not result.measured_all:
        left = len(result.space.candidates) - len(result.outcomes)
        yield f"the budget ended before {counted(left, 'candidate')} could be tried: --resume goes on"
    elif result.stopped and len(tried) < len(result.space.candidates):
        yield f"stopped: {result.stopped.reason}"
    yield from dropped(result.space)
    yield from failed(result)
    if ranked(list(result.outcomes)):
        yield from _tried(result)
    yield from verdict(result)
    if result.written:
        yield f"{'unchanged' if result.unchanged else 'written'}: {result.written}"
    if result.journal:  # a replay took nothing that matters
        yield _costs(result)


def dropped(space: Space) -> Iterator[str]:
    """Each rule that dropped candidates, with one of them and what would have been allowed."""
    for count, drop in space.drops_by_rule():
        yield f"dropped {count}: {drop_reason(drop)} Example: {one_line(str(drop.candidate))}"


def drop_reason(drop: Drop) -> str:
    fix = fix_sentence(drop.violation.fixes, drop.violation.advice)
    text = f"{drop.rule.code} {drop.violation.message}; {drop.rule.why}."
    return one_line(f"{text} Fix: {fix}." if fix else text)


def failed(result: TaskResult) -> Iterator[str]:
    """Each kind of failure with one candidate's reason; wrong results, which nobody would have noticed, one by one."""
    for outcome, count in sorted(result.failures.items()):
        found = [each for each in result.outcomes if each.result.outcome is outcome]
        shown = found[:SHOWN] if outcome is Outcome.WRONG_RESULT else found[:1]
        example = "" if outcome is Outcome.WRONG_RESULT else "Example: "
        yield f"{outcome} {count}: {failure(shown[0].result)}. {example}{shown[0].candidate}"
        yield from (f"  {failure(each.result)}. {each.candidate}" for each in shown[1:])
        if len(shown) > 1 and len(found) > len(shown):
            yield f"  and {len(found) - len(shown)} more in the journal"


def causes(result: TaskResult) -> str:
    """Why nothing works, by kind: rules, then failures."""
    parts = [f"{count} dropped by {drop.rule.code}" for count, drop in result.space.drops_by_rule()]
    for outcome, count in sorted(result.failures.items()):
        example = next(each for each in result.outcomes if each.result.outcome is outcome)
        parts.append(f"{count} {outcome} ({failure(example.result)})")
    return ", ".join(parts) or "there are no candidates"


def failure(result: Result) -> str:
    text = one_line(result.reason or str(result.outcome)).rstrip(".")
    return text if len(text) <= _REASON_WIDTH else f"{text[:_REASON_WIDTH]}..."


def verdict(result: TaskResult) -> Iterator[str]:
    """Who won, against what, and how sure that is."""
    decision = result.decision
    if result.status is Status.NO_CONFIG:
        yield "no config works: nothing was written"
    elif decision is None:
        yield _interrupted(result)
    elif result.winner is None:
        yield f"{decision.reason}: nothing was written"
    else:
        yield f"winner: {result.winner} ({decision.winner})"
        yield from (f"warning: {each}" for each in result.warnings)
        yield f"why: {decision.reason} ({_evidence(result)}), {result.baseline} being the baseline"
        if result.baseline != "default" and (against := result.against_default):
            yield f"against default: {describe(against)}, {against.verdict}"
    yield from _absent(result)


def _absent(result: TaskResult) -> Iterator[str]:
    """Why default or incumbent, with which people compare, has no time."""
    space, outcomes = result.space, {each.candidate.key: each.result for each in result.outcomes}
    for name, candidate in {
        space.incumbent.key: ("incumbent", space.incumbent),
        space.default.key: ("default", space.default),
    }.values():
        drop = next((each for each in space.drops if each.candidate == candidate), None)
        outcome = outcomes.get(candidate.key)
        if drop:
            yield f"the {name} cannot run: {drop.rule.code} {one_line(drop.violation.message)}"
        elif outcome and outcome.outcome is not Outcome.OK:
            yield f"the {name} has no time: {outcome.outcome}: {failure(outcome)}"


def _interrupted(result: TaskResult) -> str:
    ranking = ranked(list(result.outcomes))
    if not ranking:
        return "interrupted before anything was measured"
    best = ranking[0]
    return (
        f"interrupted; fastest so far, not decided by finals and not written: {best.candidate} "
        f"at {_timing(best).median_us:,.1f} us"
    )


def _evidence(result: TaskResult) -> str:
    assert result.decision is not None
    floors = [each.floor for each in result.decision.vs_incumbent.values()]
    floor = f", A/A floor {max(floors):.1%}" if floors else ""
    return f"{counted(len(result.names), 'contender')} in {result.processes} processes{floor}"


def _tried(result: TaskResult) -> Iterator[str]:
    """The fastest, and default, incumbent and winner wherever they stand."""
    ranking = ranked(list(result.outcomes))
    marked = (result.space.default, result.space.incumbent, result.winner)
    shown = [each for place, each in enumerate(ranking) if place < SHOWN or each.candidate in marked]
    names, rows = _parameters([each.candidate for each in shown])
    given_up = sum(bool(each.result.timing and each.result.timing.gave_up) for each in result.outcomes)
    rest = f", {given_up} more given up as clearly slower" if given_up else ""
    yield f"fastest of {len(ranking)} that ran and were right{rest}:"
    table = [["", *names, "median us", "p20", "p80", "TFLOP/s", "lists us", "finals", ""]]
    table += [
        [_label(result.space, each.candidate), *row, *_numbers(result, each)]
        for each, row in zip(shown, rows, strict=True)
    ]
    if not any(each.result.lists_us for each in shown):
        lists = table[0].index("lists us")
        table = [[*row[:lists], *row[lists + 1 :]] for row in table]
    yield from _fitted(table, names)


def _numbers(result: TaskResult, record: OutcomeRecord) -> list[str]:
    timing = _timing(record)
    flop = result.prepared.flop if result.prepared else 0.0
    tflops = f"{flop / timing.median_us / 1e6:.3g}" if flop else ""
    name = next((name for name, each in result.names.items() if each == record.candidate), None)
    comparison = result.decision.vs_incumbent.get(name) if result.decision and name else None
    ratio = f"{comparison.ratio:.3f}" if comparison and name != result.baseline else ""
    word = "winner" if record.candidate == result.winner else str(comparison.verdict) if ratio and comparison else ""
    times = [f"{each:.1f}" for each in (timing.median_us, timing.p20_us, timing.p80_us)]
    lists = f"{record.result.lists_us:.0f}" if record.result.lists_us else ""
    return [*times, tflops, lists, ratio or ("1" if name == result.baseline else ""), word or record.note]


def _costs(result: TaskResult) -> str:
    costs = result.costs
    finals = result.finals_costs
    parts = [f"start {result.startup_s:.1f} s", f"screening {costs.wall_s:.1f} s"]
    parts.append(f"finals {finals.wall_s:.1f} s")
    if costs.compile_core_s:
        parts.append(f"{costs.compile_core_s:.1f} core-seconds of compiling beside the screening")
    if costs.wall_s:
        parts.append(f"measuring device in use for {costs.busy:.0%} of it")
    if costs.slowest:
        seconds, candidate = costs.slowest
        parts.append(f"slowest candidate {_label(result.space, candidate)} {seconds:.1f} s")
    return ", ".join(parts)


def _label(space: Space, candidate: Candidate, *, ordinal: bool = True) -> str:
    names = [name for name, each in (("default", space.default), ("incumbent", space.incumbent)) if each == candidate]
    return ", ".join(names) or (space.labels.get(candidate.key, "") if ordinal else "")


def _parameters(candidates: Sequence[Candidate]) -> tuple[list[str], list[list[str]]]:
    """Column heads and cells; the sparse block is a column where anything has one."""
    names = list(dict.fromkeys(name for each in candidates for name in each.config))
    rows = [[_cell(each.config.get(name)) for name in names] for each in candidates]
    if any(each.sparse_block for each in candidates):
        names.append("sparse_block")
        for row, each in zip(rows, candidates, strict=True):
            row.append("x".join(map(str, each.sparse_block)) if each.sparse_block else "")
    return names, rows


def _cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else one_line(str(value))


def _fitted(table: Sequence[Sequence[str]], parameters: Sequence[str]) -> Iterator[str]:
    """Of a table that is too wide, parameters that are the same in every row are said once, above it."""
    lines = list(_aligned(table))
    if len(table) > 2 and max(map(len, lines)) > columns():
        head, *rows = table
        same = {
            place: f"{name}={rows[0][place]}"
            for place, name in enumerate(head)
            if name in parameters and len({row[place] for row in rows}) == 1
        }
        if same:
            yield f"  all: {' '.join(same.values())}"
            lines = list(_aligned([[cell for place, cell in enumerate(row) if place not in same] for row in table]))
    yield from lines


def _aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _timing(record: OutcomeRecord) -> Timing:
    assert record.result.timing is not None
    return record.result.timing
