"""Rules of tokamax. Codes above TOK-011 are not in upstream's checks, or about its Triton implementation."""
