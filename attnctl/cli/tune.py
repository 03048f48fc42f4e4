"""Sweep the block sizes of real kernels on the real device, and write the best configs to disk.

Every candidate is checked against a reference before it is timed. The best of the screening meet the default and
the config in use again, interleaved, in fresh processes, and only a difference beyond the noise makes a new winner.
State is kept in .attnctl: a sweep that was interrupted goes on where it stopped.

Examples:
  attnctl tune profiles/quickstart.yaml

  attnctl tune profiles/ranker-8k.yaml --budget 10m --device 0

  attnctl tune profiles/ranker-8k.yaml --dry-run

  attnctl tune profiles --executor ray --ray-address head-node:6379

Exit code 0: decided; 1: errors in a profile, or no config works; 2: wrong usage; 3: the machine was unstable;
4: no device, or a missing package; 130, 143: interrupted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnctl.cli._say import verbosity
from attnctl.cli.options import Profiles, device_names
from attnctl.errors import AttnctlError, ExitCode, MissingExtra, NoConfigWorks, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnctl.profile.load import Loaded
    from attnctl.tune.outcome import TaskResult
    from attnctl.tune.run import Cluster, Options


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Executor(StrEnum):
    LOCAL = "local"
    RAY = "ray"


class Cache(StrEnum):
    COLD = "cold"
    WARM = "warm"


def tune(  # noqa: PLR0917 - the command's options
    paths: Profiles,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="90s, 10m, 1h: for all profiles together.")] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="guided, exhaustive, or random:samples=32,seed=0.")
    ] = "guided",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be measured; needs no device.")] = False,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--fresh", help="Go on with the last sweep, or start again.", show_default=False),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cpu, 0, cuda:0; several of one model: 0,1 or all.")
    ] = None,
    replay: Annotated[
        list[Path] | None, typer.Option(metavar="JOURNAL", help="Journals, or folders of them, in place of a device.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Instead of `tuned` beside the profile.")] = None,
    cache: Annotated[Cache, typer.Option(help="The L2 cache before each sample.")] = Cache.COLD,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Compile workers.", show_default="one per core")
    ] = None,
    executor: Annotated[
        Executor, typer.Option(help="The devices of this machine, or of a Ray cluster.")
    ] = Executor.LOCAL,
    ray_address: Annotated[str | None, typer.Option(metavar="HOST:PORT", show_default="auto")] = None,
    ray_device_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model to tune, where a cluster has several.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to show the result.")] = Format.TEXT,
) -> int:
    from attnctl.profile.load import load, profile_paths  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.tune.budget import Budget, parse_budget  # noqa: PLC0415
    from attnctl.tune.resume import Mode  # noqa: PLC0415
    from attnctl.tune.run import Options  # noqa: PLC0415
    from attnctl.tune.strategies import get_strategy  # noqa: PLC0415

    options = Options(
        strategy=get_strategy(strategy),
        budget=Budget(parse_budget(budget)) if budget is not None else None,
        mode=Mode.AUTO if resume is None else Mode.RESUME if resume else Mode.FRESH,
        device=device_names(device),
        cache=cache.value,
        out=out,
        jobs=jobs,
        replay=tuple(_journals(replay or ())),
    )
    if executor is Executor.RAY and not dry_run:
        if options.replay or options.device:
            raise UsageError("--executor ray brings its own devices", "leave --replay and --device out")
        options = replace(options, cluster=_ray(ray_address, ray_device_name))
    profiles = [load(path) for path in profile_paths(paths)]
    if _refused(profiles):
        return ExitCode.FINDINGS
    return _dry_run(profiles, options, output) if dry_run else _tune(profiles, options, output)


def _ray(address: str | None, device_name: str | None) -> Cluster:
    try:
        from attnctl.cluster.executor import RayCluster  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "ray") from None
    return RayCluster(address, device_name)


def _refused(profiles: Sequence[Loaded]) -> bool:
    """Say on stderr what is wrong with profiles that cannot be tuned at all. Other rules only drop candidates."""
    from attnctl.cli._stopping import stopping_findings  # noqa: PLC0415
    from attnctl.report.text import line  # noqa: PLC0415

    stopping = [finding for loaded in profiles for finding in stopping_findings(loaded)]
    for finding in stopping:
        typer.echo(line(finding), err=True)
    return bool(stopping)


def _dry_run(profiles: Sequence[Loaded], options: Options, output: Format) -> int:
    from attnctl.report import _sweep, _sweep_json  # noqa: PLC0415
    from attnctl.tune.interrupt import Interrupts  # noqa: PLC0415
    from attnctl.tune.progress import Progress  # noqa: PLC0415
    from attnctl.tune.run import Tuning  # noqa: PLC0415

    spaces = [space for each in profiles for space in Tuning(each, options, Progress(), Interrupts()).spaces()]
    planned = [(space, options.strategy.most(len(space.candidates))) for space in spaces]
    if output is Format.JSON:
        _print_json(_sweep_json.document("dry_run", [_sweep_json.dry_run(*each) for each in planned]))
    else:
        _print_blocks([list(_sweep.dry_run(*each)) for each in planned])
    return ExitCode.OK if all(space.candidates for space in spaces) else ExitCode.FINDINGS


def _tune(profiles: Sequence[Loaded], options: Options, output: Format) -> int:
    from attnctl.report._live import live  # noqa: PLC0415
    from attnctl.report._terminal import has_colour  # noqa: PLC0415
    from attnctl.tune.interrupt import Interrupted, Interrupts  # noqa: PLC0415
    from attnctl.tune.run import Tuning, count_tasks, how_to_resume  # noqa: PLC0415

    progress = live(terminal=has_colour(sys.stderr), verbosity=verbosity())
    results: list[TaskResult] = []
    with Interrupts() as interrupts:
        tunings = [Tuning(each, options, progress, interrupts) for each in profiles]
        for index, tuning in enumerate(tunings):
            try:
                tuning.run(count_tasks(profiles[index + 1 :]))
            except Interrupted as interrupted:
                progress.end()
                _show([*results, *tuning.results], output)
                ahead = tuning.left + count_tasks(profiles[index + 1 :])
                rest = f"{how_to_resume(tuning.loaded.path)} goes on where it stopped" if ahead else "all was decided"
                typer.echo(f"{interrupted}: {rest}", err=True)
                return interrupted.exit_code
            except AttnctlError:
                progress.end()
                if decided := [each for each in (*results, *tuning.results) if each.winner]:
                    _show(decided, output)
                raise
            progress.end()
            results += tuning.results
    _show(results, output)
    return _exit_code(results)


def _exit_code(results: Sequence[TaskResult]) -> int:
    """The worst of all tasks."""
    from attnctl.report._sweep import causes  # noqa: PLC0415
    from attnctl.tune.outcome import Status  # noqa: PLC0415

    broken = [each for each in results if each.status is Status.NO_CONFIG]
    if broken:
        raise NoConfigWorks(
            "; ".join(f"no config works for {each.task.problem.slug}: {causes(each)}" for each in broken)
        )
    return ExitCode.INCONCLUSIVE if any(each.status is Status.UNSTABLE for each in results) else ExitCode.OK


def _show(results: Sequence[TaskResult], output: Format) -> None:
    from attnctl.report import _sweep, _sweep_json  # noqa: PLC0415

    if output is Format.JSON:
        _print_json(_sweep_json.document("tune", [_sweep_json.task(each) for each in results]))
    else:
        _print_blocks([list(_sweep.summary(each)) for each in results])


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2))


def _print_blocks(blocks: Sequence[Sequence[str]]) -> None:
    typer.echo("\n\n".join("\n".join(block) for block in blocks))


def _journals(paths: Sequence[Path]) -> list[Path]:
    """Files as they are; the journals in folders, however deep."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.jsonl*")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path}: there is no journal in this folder", "journals end in .jsonl or .jsonl.gz")
        found += inside
    return found
