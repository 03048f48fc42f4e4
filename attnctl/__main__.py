from __future__ import annotations

import signal
from typing import Never


def main() -> Never:
    """The ``attnctl`` executable. Ctrl-C ends it without a traceback from its first import on."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a shell may have switched it off: background jobs
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from attnctl.cli import app  # noqa: PLC0415 - takes longer than people take to press Ctrl-C

    signal.signal(signal.SIGINT, handler)
    app.main()


if __name__ == "__main__":
    main()
