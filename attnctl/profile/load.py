"""Load a profile: everything that is wrong with the file at once, and where each field stands in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from attnctl.errors import UsageError
from attnctl.profile.document import MAX_FAULTS, Document, dotted, read
from attnctl.profile.faults import TEXT, Fault, Faults, advise, shorten
from attnctl.profile.mask_source import Unusable, completed
from attnctl.profile.model import LayoutSection, Profile
from attnctl.profile.names import nearest
from attnctl.profile.parameters import check_config, check_search
from attnctl.profile.places import place_of, source_path, written_path
from attnctl.profile.problems import length_fault
from attnctl.rules.finding import Finding
from attnctl.rules.form import fields, files
from attnctl_kernels.contract import Family, PassName
from attnctl_kernels.families import family_names, get_family

_FORWARD: PassName = "forward"
_UNKNOWN = fields.field_unknown.code
SUFFIXES = (".yaml", ".yml")
_AMBIGUOUS = {
    "boolean word": files.boolean_word,
    "number": files.number_spelled_ambiguously,
    "date": files.date,
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """One profile file. ``profile`` is None where ``findings`` holds an error."""

    path: Path
    profile: Profile | None
    findings: tuple[Finding, ...]
    document: Document = field(repr=False)
    family: Family | None = None
    seq_lens: tuple[int, ...] = ()

    def locate(
        self, name: str, problem_index: int | None = None, pass_name: PassName = _FORWARD
    ) -> tuple[str, int, int]:
        """Field as the file writes it, line and column, for a field in the words of rules.

        ``problem.seqlen_q`` of the second problem is ``problem.seq_len[1]`` in a file that lists lengths. What the file
        leaves out has the place of the nearest thing around it that is written.
        """
        flat = self.family is not None and self.family.flat_config
        index = None if self.seq_lens else problem_index
        path = source_path(self.document, name, index, pass_name, flat_config=flat)
        line, column = place_of(self.document, written_path(self.document, path))
        return dotted(path), line, column


def load(path: Path, *, seq_lens: Sequence[int] = (), layout: Path | None = None) -> Loaded:
    """Read, parse and check ``path``; ``seq_lens`` replaces its lengths, ``layout`` its file of block arrays.

    Raises:
        UsageError: there is no such file, or it may not be read.
    """
    document = read(path)
    if document.data is None:
        return Loaded(path, None, tuple(document.findings), document)
    faults = Faults(document)
    profile = _validate(faults)
    family = _family(faults)
    if family is not None:
        check_config(faults, family)
        check_search(faults, family)
    if profile is not None:
        profile = _with_mask(profile, path.parent, faults)
    if not seq_lens:
        _check_lengths(faults)
    findings = _findings(faults)
    if profile is not None and not findings:
        profile = _with_layout_file(profile, path.parent, layout)
    return Loaded(path, None if findings else profile, findings, document, family, tuple(seq_lens))


def _with_mask(profile: Profile, folder: Path, faults: Faults) -> Profile:
    try:
        return profile.model_copy(update={"mask": completed(profile.mask, folder)})
    except Unusable as error:
        path = ("mask", error.field)
        faults.add(fields.mask_source_unusable, path, dotted(path), error.fault, error.advice)
        return profile


def _with_layout_file(profile: Profile, folder: Path, layout: Path | None) -> Profile:
    """The file of block arrays is named from where the profile is, or on the command line."""
    section = profile.layout or LayoutSection()
    if layout is None and section.path is None:
        return profile
    file = layout if layout is not None else folder / str(section.path)
    return profile.model_copy(update={"layout": section.model_copy(update={"path": str(file)})})


def profile_paths(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, folders walked for profiles; written and hidden folders are passed over.

    Raises:
        UsageError: a path does not exist, or a folder holds no profile.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        if not path.is_dir():
            found[path] = None
            continue
        below = sorted(_walk(path))
        if not below:
            raise UsageError(f"{path}: no profile in this folder", "profiles are files that end in .yaml or .yml")
        found.update(dict.fromkeys(below))
    return list(found)


def _walk(folder: Path) -> Iterable[Path]:
    for root, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if name != "tuned" and not name.startswith(".")]
        profiles = (Path(root) / name for name in names if name.endswith(SUFFIXES) and not name.startswith("."))
        # A pipe would be waited for; a link to nowhere is reported when it is read.
        yield from (path for path in profiles if path.is_file() or not path.exists())


def _unreadable(error: OSError) -> None:
    """A folder that is passed over in silence would pass a gate."""
    raise UsageError(f"{error.filename}: cannot be read: {error.strerror}")


def _validate(faults: Faults) -> Profile | None:
    try:
        return Profile.model_validate(faults.document.data, strict=True)
    except ValidationError as error:
        faults.of_model(error)
        return None


def _family(faults: Faults) -> Family | None:
    name = (faults.document.data or {}).get("family")
    path = ("family",)
    if not isinstance(name, str) or path in faults.document.ambiguous:
        return None
    try:
        return get_family(name)
    except KeyError:
        known = family_names()
        near = nearest(name, known, 2)
        advice = f"write {' or '.join(near)}" if near else "use one of them"
        faults.add(fields.value_unknown, path, "family", faults.shown(path), ", ".join(known) or "none", advice)
    except Exception as error:  # noqa: BLE001 - a family may come from anywhere; its fault is a finding
        reason = shorten(f"{type(error).__name__}: {error}", 200)
        faults.add(fields.family_does_not_load, path, name, reason)
    return None


def _check_lengths(faults: Faults) -> None:
    section = (faults.document.data or {}).get("problem")
    fault = length_fault(section) if isinstance(section, dict) else None
    if fault:
        path, message, advice = fault
        faults.add(fields.lengths_unclear, path, message, advice, at=written_path(faults.document, path))


def _findings(faults: Faults) -> tuple[Finding, ...]:
    """All findings by line, one per place and message; a place whose spelling is at fault has just that one."""
    document = faults.document
    wanted = {fault.path: fault.wanted for fault in reversed(faults.found)}
    found = {fault.path: fault.finding for fault in _spelling(document, wanted)}
    rest = [
        fault.finding
        for fault in faults.found
        if fault.path not in document.flawed and (fault.path not in found or fault.finding.code == _UNKNOWN)
    ]
    unique = {(each.line, each.column, each.code, each.message): each for each in (*found.values(), *rest)}
    ordered = sorted((*document.findings, *unique.values()), key=lambda each: (each.line, each.column, each.code))
    if len(ordered) > MAX_FAULTS:
        place = (ordered[MAX_FAULTS].line, ordered[MAX_FAULTS].column)
        facts = (f"more than {MAX_FAULTS} faults of form", f"{MAX_FAULTS} faults")
        ordered[MAX_FAULTS:] = [files.file_too_large.finding(document.path, place, "", *facts)]
    return tuple(ordered)


def _spelling(document: Document, wanted: dict[tuple[str | int, ...], str]) -> Iterable[Fault]:
    """Scalars that YAML readers read differently, each with what its field wants to be written."""
    for path, ambiguous in islice(document.ambiguous.items(), MAX_FAULTS + 1):
        if path in document.flawed:
            continue
        # No complaint: the field takes text. One about something around it: what the field wants is not known.
        around = any(path[:end] in wanted for end in range(1, len(path)))
        wants = wanted.get(path, "" if around else TEXT)
        facts = (shorten(ambiguous.text), ambiguous.fault, advise(ambiguous, wants))
        finding = _AMBIGUOUS[ambiguous.kind].finding(document.path, document.values[path], dotted(path), *facts)
        yield Fault(path, finding)
