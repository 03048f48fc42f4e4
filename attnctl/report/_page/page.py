"""The HTML file: everything inside, nothing fetched, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from attnctl._version import __version__
from attnctl.errors import MissingExtra
from attnctl.report._page.contents import Contents
from attnctl.report._page.drawings import Drawings
from attnctl.report._page.sections import sections_of


def page(contents: Contents) -> str:
    """The whole file.

    Raises:
        MissingExtra: plotly or Jinja is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - optional
        from plotly.offline import get_plotlyjs  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(str(error.name or "plotly"), "report") from None
    sections = list(sections_of(contents))
    drawings = Drawings()
    environment = Environment(
        loader=PackageLoader("attnctl.report._page", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals["place"] = drawings.place
    style, script, plotly = (_asset("page.css"), _asset("page.js"), get_plotlyjs())
    body = environment.get_template("page.html.jinja").render(
        title=contents.title, sections=sections, version=__version__, style=style
    )
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(plotly)} {_hash(script)}",
            "style-src 'unsafe-inline'",  # plotly writes styles
            "img-src data: blob:",
        ]
    )
    # Placed by hand: the scripts are ours or the library's, and megabytes that need no escaping.
    head, _, tail = body.partition("<!-- scripts -->")
    return "".join(
        [
            head.replace("CONTENT-SECURITY-POLICY", policy, 1),
            f'<script type="application/json" id="figures">{drawings.as_json()}</script>\n',
            f"<script>{plotly}</script>\n<script>{script}</script>\n",
            tail,
        ]
    )


def _asset(name: str) -> str:
    return (files("attnctl.report._page") / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
