"""The kernel families, one folder each, and what they share.

Folders named in ``ATTNCTL_FAMILY_PATH`` are searched too, so that a family can be developed outside this tree.
"""

import os

__path__ += [folder for folder in os.environ.get("ATTNCTL_FAMILY_PATH", "").split(os.pathsep) if folder]
