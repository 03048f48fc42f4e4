"""Faults of a file as YAML: whether it can be read at all, and whether every YAML reader reads it alike."""

from __future__ import annotations

from attnctl.rules.form import Said, form

ONE_MEANING = "every YAML reader must read the same profile"


@form("YAML001", why="a profile is text, so that it can be reviewed")
def not_utf8_text(reason: str) -> Said:
    """The file is not UTF-8 text.

    What: The bytes of the file are not UTF-8, or hold control characters such as NUL.

    Why: A profile is read by people, by editors and by other YAML readers. Binary data (a checkpoint, an archive, a
    compiled kernel) or UTF-16 given by mistake would be read as garbage or not at all.

    Fix: Check the path. Text in another encoding is converted with, for example,
    `iconv -f UTF-16 -t UTF-8 old.yaml > new.yaml`. A file that starts with bytes FF FE is UTF-16.
    """
    return f"not UTF-8 text: {reason}", "save the file as UTF-8 text, or check the path"


@form("YAML002", why="a profile names at least a family and a problem")
def file_without_content() -> Said:
    """The file holds nothing.

    What: The file is empty, or holds only comments and white space.

    Why: There is nothing to check. An empty file is often what an interrupted write or an unset variable in a script
    leaves behind, so it must not pass.

    Fix: Write at least these lines:

        family: blocks
        problem: {seq_len: 1024, num_heads_q: 4, head_dim: 64}
    """
    return "the file holds nothing", "write at least `family:` and `problem:`"


@form("YAML003", why="a profile is a mapping of names to values")
def not_a_mapping(found: str, advice: str) -> Said:
    """The file is not a mapping of names to values.

    What: The top of the file is a list, a number or a piece of text.

    Why: Fields are found by name. A colon without a space after it does not make a field: `family:blocks` is one
    word.

    Fix: Write `family: blocks` with a space after the colon, and no `- ` before the fields.
    """
    return f"the file is {found}, not a mapping of names to values", advice


@form("YAML004", why="a profile is written by hand, and checking one takes a blink")
def file_too_large(what: str, limit: str) -> Said:
    """The file is too large.

    What: The file is larger than 1 MiB, holds more than 50,000 values, or has more than 100 faults of form.

    Why: A profile is some ten lines. Files that are larger by orders of magnitude are usually something else (a data
    set, a log), and reading them would take the memory and time that a check in CI does not have.

    Fix: Check the path. Split a profile whose `mask.rows` holds more than 50,000 blocks: at 65,536 tokens and blocks
    of 128 a causal mask has 131,328, at blocks of 256 it has 32,896.
    """
    return f"{what}; the limit is {limit}", "check the path, or split the file"


@form("YAML005", why="the deepest field of a profile is 4 levels down")
def nested_too_deep(limit: int) -> Said:
    """Values are nested too deeply.

    What: Lists or mappings are nested more than 32 levels deep.

    Why: No field needs more than 4 levels. Deep nesting comes from generated or damaged files, and exhausts the stack
    of many YAML readers.

    Fix: Check brackets that are opened and never closed: `[[[[64` instead of `[64]`.
    """
    return f"nested more than {limit} levels deep", "close the brackets, or check the path"


@form("YAML006", why="a few lines of aliases can stand for gigabytes, and JSON and many tools have none")
def anchor_or_alias(found: str) -> Said:
    """The file uses an anchor, an alias or a merge key.

    What: `&name` (anchor), `*name` (alias) or `<<:` (merge key) is used.

    Why: Nine aliases of nine aliases, nine levels deep, are 387,420,489 values in 200 bytes. And a merge key
    means nothing to a YAML 1.2 reader, so an editor would see another profile than attnctl.

    Fix: Write the value where it is used. Two profiles that share values are two files, or one file with a list of
    lengths. A value that starts with a star or an ampersand is quoted: `description: "*new* kernel"`.
    """
    return (
        f"`{found}` is an anchor, alias or merge key",
        "write the value itself, or quote text that starts with & or *",
    )


@form("YAML007", why="tags ask a reader to build objects, which a profile never needs")
def tag(found: str) -> Said:
    """The file uses a tag.

    What: A value carries a tag: `!!int`, `!!python/object`, `!anything`.

    Why: Tags make readers build objects of other types, up to running code. The fields of a profile have types
    already.

    Fix: Remove the tag: `tile_n: !!int "128"` is `tile_n: 128`. Text that starts with `!` is quoted.
    """
    return f"tag `{found}`", "remove the tag, or quote text that starts with !"


@form("YAML008", why="readers keep the first, the last or neither, so one of the values is silently lost")
def key_repeated(key: str, first_line: int) -> Said:
    """A key appears twice in one mapping.

    What: The same name is given twice at the same level.

    Why: PyYAML keeps the last value without a word, other readers the first; what was meant cannot be known. It
    happens when a block is copied: two `tile_n` lines, 128 and 96, of which one is tuned and one is stale.

    Fix: Remove one of the two.
    """
    return f"key `{key}` is repeated; it is first given in line {first_line}", "remove one of the two"


@form("YAML009", why="one file is one profile")
def several_documents() -> Said:
    """The file holds more than one YAML document.

    What: A line `---` starts a second document.

    Why: Tuned results are stored per file name; the second document would silently not be checked.

    Fix: Move the second document into a file of its own; `attnctl validate FOLDER` checks all files of a folder.
    """
    return "a second document starts here", "move it into a file of its own, or remove the line `---`"


@form("YAML010", why="the rest of the file cannot be read")
def syntax_error(problem: str, advice: str) -> Said:
    """The file is not valid YAML.

    What: The YAML reader gave up at this place.

    Why: What follows cannot be told apart: indentation with tabs, a bracket or a quote that is never closed, a colon
    without a value.

    Fix: Look at the named line and the one before it. Indent with spaces; close every `[`, `{` and `"`; quote text
    that holds `: ` or ` #`.
    """
    return f"not valid YAML: {problem}", advice


@form("YAML011", why="fields have names")
def key_without_name() -> Said:
    """A key is a list, a mapping or nothing.

    What: A key is not a plain word: `? [1, 2]`, `{[a]: 1}` or `: 3`.

    Why: Every field of a profile has a name. A key of another kind usually comes from brackets in the wrong place.

    Fix: Write `name: value`. A template that was never filled in, `{{ block }}`, reads as such a key: fill it in.
    """
    return "this key is not a name", "write `name: value`"


@form("YAML012", why=ONE_MEANING)
def boolean_word(text: str, fault: str, advice: str) -> Said:
    """A word that is a boolean to some YAML readers.

    What: `on`, `off`, `yes`, `no`, `y` or `n` stands without quotes.

    Why: YAML 1.1 reads these words as true and false, YAML 1.2 as text. `name: NO` becomes false, `stages: yes`
    becomes 1 where a reader takes a boolean for a number.

    Fix: Write `true` or `false` where a switch is meant, and quote the word where text is meant: `"no"`.
    """
    return f"`{text}` {fault}", advice


@form("YAML013", why=ONE_MEANING)
def number_spelled_ambiguously(text: str, fault: str, advice: str) -> Said:
    """A number that YAML readers read differently.

    What: A number is written with a leading zero (`0200`), in base 60 (`1:30`), in hexadecimal, octal or binary, with
    underscores (`1_024`), with an exponent that lacks its sign or its point (`1e5`, `1e-3`, `1.0e3`), is not finite,
    or is larger than 64 bits hold.

    Why: To PyYAML `0200` is 128, `0128` is text, `1:30` is 90 and `1e-3` is text; to a YAML 1.2 reader they are 200,
    128, text and 0.001. A tile of 128 that a reviewer reads as 200 looks legal. All numbers are therefore decimal.

    Fix: Write `128`, `1024`, `100000`, `1.0e-3`, `1.0e+3`; write durations with a unit, `90s`; quote text, `"1:30"`.
    """
    return f"`{text}` {fault}", advice


@form("YAML014", why=ONE_MEANING)
def date(text: str, fault: str, advice: str) -> Said:
    """A date without quotes.

    What: A value looks like a date: `2026-07-13`.

    Why: YAML 1.1 reads a date, YAML 1.2 reads text. No field of a profile holds a date, but a description or a
    version may look like one.

    Fix: Quote it: `"2026-07-13"`.
    """
    return f"`{text}` {fault}", advice
