"""The site: the Markdown of this repository in the order of reading. ``make site`` builds it, and refuses a warning."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

_setup = ConfigParser()
_setup.read(Path(__file__).resolve().parents[1] / "setup.cfg")

project = "aeron-spark"
release = version = _setup["metadata"]["version"]
copyright = "the aeron-spark authors, Apache-2.0"
root_doc = "site/index"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
include_patterns = [
    "site/index.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/*/*.md",
]
myst_enable_extensions = ["linkify"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4  # as GitHub makes them, which the links of the pages use
html_theme = "furo"
html_title = f"aeron-spark {release}"
# a link to a file that is no page, such as a notebook, becomes a download of it
html_copy_source = False
