"""Write the configs of a profile as code or data: fa4, flex, jax, ranker, vllm, csv.

The configs are those that a program gets from `attnctl.load_config` (`attnctl which` explains them). Needs no device:
--device-name asks about another machine.

Examples:
  attnctl export profiles/ranker-8k.yaml --to fa4 --device-name nvidia_h200

  attnctl export profiles/ranker-8k.yaml --to csv --seq-len 8192 --seq-len 16384 --out configs.csv
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnctl.cli import _complete
from attnctl.cli._say import say
from attnctl.cli.options import DeviceName, OneProfile, PassOption, SeqLens, TunedDir


def export(  # noqa: PLR0917 - the command's options
    profile: OneProfile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help="fa4, flex, jax, ranker, vllm or csv.",
            autocompletion=_complete.export_forms,
        ),
    ],
    seq_len: SeqLens = None,
    pass_name: PassOption = None,
    device_name: DeviceName = None,
    tuned: TunedDir = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A file, or a folder (FOLDER/ is made). Without it: standard output."),
    ] = None,
) -> None:
    from attnctl.export import Export, get_exporter  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.files import write_atomic  # noqa: PLC0415
    from attnctl.profile.decision import Source, decide  # noqa: PLC0415
    from attnctl.profile.load import load  # noqa: PLC0415
    from attnctl.profile.runtime import asked_tasks, excuse  # noqa: PLC0415

    loaded = load(profile)
    asked = asked_tasks(loaded, seq_len or (), pass_name)
    exporter = get_exporter(to, asked[0].family)
    chosen = Export(profile, [decide(loaded, task, device_name=device_name, tuned_dir=tuned) for task in asked])
    for each in chosen.decisions:
        if each.source is not Source.TUNED:
            say(f"{each.task.problem.slug} {each.task.pass_name}: {excuse(profile, each)}")
    text = exporter.render(chosen)
    if out is None:
        typer.echo(text, nl=False)
        return
    name_file = getattr(exporter, "file_name", lambda _: f"{profile.stem}{exporter.SUFFIX}")
    path = Path(out, name_file(chosen)) if out.endswith("/") or Path(out).is_dir() else Path(out)
    write_atomic(path, text)
    say(f"written: {path}")
