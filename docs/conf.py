"""How the documentation is built: Sphinx, MyST and Furo, without the network. `python3 dev.py docs` builds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kraftlib

project = "kraftlib"
author = "The kraftlib authors"
copyright = author
version = release = kraftlib.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Signatures name types that no page describes: inner ones of ours, and those of projects whose inventories would need
# the network. Links between pages are checked all the same.
nitpick_ignore_regex = [(r"py:.*", r".*")]

html_theme = "furo"
html_title = "kraftlib"
html_copy_source = False

_INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def docstring_to_rst(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Turn a docstring of ours, which is plain text, into reStructuredText.

    `code` in single backticks becomes code, and text indented after an empty line is shown as it is.
    """
    out: list[str] = []
    for line in lines:
        starts_block = line.startswith("    ") and out and not out[-1].strip()
        if starts_block and not next((o for o in reversed(out) if o.strip()), "").startswith("    "):
            out += ["::", ""]
        out.append(line if line.startswith("    ") else _INLINE_CODE.sub(r"``\1``", line))
    lines[:] = out


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", docstring_to_rst)
