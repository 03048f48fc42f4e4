"""A family whose package is damaged."""

raise ImportError("libtoy.so.3: cannot open shared object file")
