from __future__ import annotations

from attnctl.cli.app import main

if __name__ == "__main__":
    main()
