"""Journals for tests of reports: those recorded on an H200, and the same with something changed."""

import gzip
import json
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "data/journals"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in RECORDED.glob("*.jsonl.gz"))
FORWARD = [name for name in NAMES if "backward" not in name]  # the family's whole space was swept
HOSTILE = "</script><img src=x onerror=alert(1)><!--\u2028{{7*7}}&\"'"


def recorded(name):
    return RECORDED / f"{name}.jsonl.gz"


def records(name):
    with gzip.open(recorded(name), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def store(path, found):
    path.write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")
    return path


def failed(record, outcome, reason):
    """The same outcome record, had the candidate failed."""
    result = {"reply": "result", "outcome": outcome, "reason": reason}
    return {**record, "result": result}


def with_failures(name, reason="reason"):
    """One candidate of each kind of failure; none of them was in the finals."""
    kinds = ["compile_error", "out_of_resources", "launch_error", "wrong_result", "timeout", "worker_died", "skipped"]
    found = records(name)
    finalists = {
        json.dumps(each["candidate"])
        for record in found
        if record["record"] == "finals"
        for each in record["contenders"]
    }
    for index, record in enumerate(found):
        if kinds and record["record"] == "outcome" and json.dumps(record["candidate"]) not in finalists:
            found[index] = failed(record, kinds.pop(), reason)
    return found


def hostile():
    """Texts from outside that try to become markup."""
    found = with_failures("ranker-8k", HOSTILE)
    found[0]["profile"] = HOSTILE
    found[0]["environment"]["driver"] = HOSTILE
    for record in found:
        if record["record"] == "outcome":
            record["note"] = HOSTILE
    return found


def multiplied(name, count):
    """The recorded sweep with so many candidates: the same ones again at tile sizes of their own."""
    found = records(name)
    outcomes = [record for record in found if record["record"] == "outcome"]
    extra = []
    for number in range(count - len(outcomes)):
        record = json.loads(json.dumps(outcomes[number % len(outcomes)]))
        record["candidate"]["config"]["tile_n"] += 256 * (1 + number // len(outcomes))
        extra.append(record)
    last = max(index for index, record in enumerate(found) if record["record"] == "outcome")
    return [*found[: last + 1], *extra, *found[last + 1 :]]
