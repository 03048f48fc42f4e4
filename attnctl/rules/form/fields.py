"""Faults of the fields of a profile: names, types and values, before any rule about kernels can be asked."""

from __future__ import annotations

from attnctl.rules.form import Said, form


@form("PROFILE001", why="a misspelt field would be ignored without a word")
def field_unknown(name: str, where: str, advice: str) -> Said:
    """A field that does not exist.

    What: The profile has a key that neither the format nor the family's parameters know at this place.

    Why: An ignored key is the worst outcome: `tile_N: 96` would validate, and the kernel would run its default of
    128.

    Fix: Use the nearest known name, which the message gives: `passes` for `pass`, `batch_size` for `batch`, `tile_n`
    for `tile_N`. Parameters of the kernel stand below `config`, for families with a config per pass below
    `config.forward` or `config.backward`. `attnctl schema` prints the whole format for editors.
    """
    return f"unknown field `{name}`{where}", advice


@form("PROFILE002", why="there is no default that would be right")
def field_missing(name: str, advice: str) -> Said:
    """A required field is missing.

    What: `family`, `problem`, `problem.num_heads_q` or `problem.head_dim` is missing, or a parameter that the family
    cannot choose by itself.

    Why: These fields say what is computed; anything that attnctl assumed would be checked instead of what runs.

    Fix: Add the field: `problem: {seq_len: 4096, num_heads_q: 16, head_dim: 128}`.
    """
    return f"`{name}` is missing", advice


@form("PROFILE003", why="values are not converted")
def value_of_wrong_type(name: str, wanted: str, found: str, advice: str) -> Said:
    """A value of the wrong type.

    What: The field wants, for example, a whole number, and the file gives text, a switch or a list.

    Why: Converting silently is how `"false"` turns a feature on (text that is not empty is true), `true` becomes 1
    stage, and the version 3.10 becomes 3.1.

    Fix: Write whole numbers without quotes and without a point (`128`), switches as `true` or `false`, versions in
    quotes (`"3.10"`), pairs as `[128, 128]`.
    """
    return f"`{name}` wants {wanted}, found {found}", advice


@form("PROFILE004", why="only these values have a meaning")
def value_unknown(name: str, value: str, known: str, advice: str) -> Said:
    """A value that is none of the known ones.

    What: The field takes one of a few words or numbers, and the file gives another: a family, a mask pattern, a
    dtype, a pass.

    Why: A word that attnctl does not know cannot be checked.

    Fix: Use the nearest known value, which the message gives: `bfloat16` for `bf16`, `history_candidate` for
    `history-candidate`.
    """
    return f"`{name}` is {value}; known: {known}", advice


@form("PROFILE005", why="no kernel can run with it")
def value_out_of_bounds(name: str, value: str, limit: str, advice: str) -> Said:
    """A value outside its limits.

    What: A number, or the length of a list, is below or above what the field allows: a `head_dim` of 0, a negative
    length, more than 10,000 lengths.

    Why: The limits of the format hold for every kernel; tighter ones are rules of the families.

    Fix: Use a value within the limit that the message names: `head_dim: 64` for `head_dim: 0`.
    """
    return f"`{name}` is {value}, {limit}", advice


@form("PROFILE006", why="a problem has one length of queries and one of keys")
def lengths_unclear(fault: str, advice: str) -> Said:
    """The sequence lengths are missing or contradict each other.

    What: The profile gives no length, `seq_len` together with `seqlen_q` or `seqlen_k`, `seqlen_k` alone, or two
    lists of different size.

    Why: `seq_len` sets both lengths; `seqlen_q` and `seqlen_k` set them one by one, and two lists are read as pairs:
    with 3 query lengths and 2 key lengths one query length has no partner.

    Fix: Write `seq_len: [4096, 8192]`, or `seqlen_q: [1, 128]` with `seqlen_k: [4096, 8192]` (two problems), or with
    `seqlen_k: 8192` (the same for both). `--seq-len` replaces all of them.
    """
    return fault, advice


@form("PROFILE007", why="its rules cannot be asked")
def family_does_not_load(name: str, reason: str) -> Said:
    """A family that is installed but cannot be imported.

    What: Importing the family's `spec` failed.

    Why: A family may come from another package; when its spec has an error or needs a package that is not there,
    nothing is known about its parameters.

    Fix: Repair or reinstall the package that brings the family. A spec must import without torch, jax or cutlass.
    """
    return f"family `{name}` does not load: {reason}", "repair or reinstall the package that brings it"


@form("PROFILE008", why="the value cannot be understood")
def value_malformed(name: str, value: str, problem: str, advice: str) -> Said:
    """A value that does not have the form of its field.

    What: The value has the right type and the wrong form: a percentage without its sign, a budget without a unit, a
    parameter that the family's own check refuses.

    Why: `gate.max_regression: "3"` could be 3 or 300 percent, `search.budget: "10"` seconds or minutes.

    Fix: Write `3%` and `10m` (`s`, `m` or `h`).
    """
    return f"`{name}` is {value}: {problem}", advice


@form("PROFILE009", why="without it there is no mask")
def mask_source_unusable(name: str, fault: str, advice: str) -> Said:
    """The facts of a mask cannot be had from where the profile says.

    What: `mask.seed` goes with `pattern: document` and `document_len`, the mean of the lengths that are drawn.
    `mask.path` goes with `pattern: document` or `blocks`, and names a JSON file that holds `document_lens`, or
    `block_size` and `rows`, which the profile then does not.

    Why: A mask that was read in part would be another mask.

    Fix: `mask: {pattern: document, document_len: 512, seed: 7}`; `mask: {pattern: document, path: lengths.json}` with
    `{"document_lens": [1000, 2000, 1096]}` in the file.
    """
    return f"`{name}`: {fault}", advice
