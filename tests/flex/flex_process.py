"""Compile candidates from stdin as a compile worker would; one object per candidate to stdout."""

import json
import sys

from attnctl_kernels.contract import Candidate, CompileError, OutOfResources, Task
from attnctl_kernels.flex.launch import LAUNCHER


def compiled(task, candidate):
    try:
        result = LAUNCHER.compile(Task.model_validate(task), Candidate.model_validate(candidate))
    except (CompileError, OutOfResources) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": None, "binary": result.binary, "resources": result.resources, "cached": result.cached}


if __name__ == "__main__":
    json.dump([compiled(*each) for each in json.load(sys.stdin)], sys.stdout)
