"""Find the messages of kernels in what people paste: an error line, a traceback, a log of many megabytes.

A rule lists what its kernel says in ``Rule.upstream``. There, ``{}`` stands for a value, and ``…`` for anything in
between: text before it must have come shortly before, so that a message which any program may print counts only near
the module that it is about (``attention_mgpu … integer division or modulo by zero``).

``window``
    Text as people paste it, undressed: colours, prefixes, quotes and all white space removed, so that it does not
    matter where a terminal broke the lines.
``template``
    One message of ``Rule.upstream``, and how it is recognised.
``scan``
    All templates over a stream, in linear time and constant memory.
``advice``
    The numbers of a message: what they mean, and values that would work.
"""

from __future__ import annotations

from attnctl.rules.messages.scan import Match, find_messages

__all__ = ["Match", "find_messages"]
