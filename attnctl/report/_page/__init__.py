"""One HTML file about sweeps and profiles, and the same facts as JSON and CSV.

``recall`` turns a journal back into what its sweep found, ``rows`` and ``document`` hold the facts, the figure modules
draw them, ``sections`` puts them in order, and ``page`` into one file that needs nothing else.
"""
