"""The Python of README.md and docs/ passes ``mypy --strict``, as a program of a user does.

``spark`` in a block is the session of a notebook. Pandas and PyArrow have no types of their own; those of others refuse
some correct calls.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT, pages, sections

SPARK: Final = "from pyspark.sql import SparkSession\n\nspark: SparkSession\n"
SETTINGS: Final = f"""\
[mypy]
strict = True
mypy_path = {ROOT / "connector"}
[mypy-pandas.*,pyarrow.*]
ignore_missing_imports = True
follow_imports = skip
[mypy-jpype.*,prometheus_client.*]
ignore_missing_imports = True
"""


def check(folder: Path, programs: dict[str, str]) -> str:
    """Return the output of mypy for programs by name; empty if it finds nothing."""
    settings = folder / "mypy.ini"
    settings.write_text(SETTINGS)
    for name, code in programs.items():
        (folder / f"{name}.py").write_text(code)
    cache = ROOT / ".mypy_cache" / "pages"
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(cache)]
    files = [f"{name}.py" for name in programs]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr if done.returncode else ""


def page_programs() -> dict[str, str]:
    """Return one program for each section with Python."""
    programs = {}
    for page in pages():
        for section in sections(page):
            blocks = [block.code for block in section.blocks if block.is_python]
            if blocks:
                code = "\n".join(blocks)
                uses_spark = re.search(r"\bspark\b", code) is not None and "spark = " not in code
                name = re.sub(r"\W+", "_", f"{page} {section.heading}").lower().strip("_")
                programs[name] = (SPARK if uses_spark else "") + code
    return programs


@pytest.mark.slow
def test_the_python_of_the_pages_passes_mypy_strict(tmp_path: Path) -> None:
    programs = page_programs()
    assert {"readme_md_the_secure_server", "docs_python_client_md_asyncio"} <= set(programs)
    assert check(tmp_path, programs) == ""


WRONG: Final = {
    "name": 'import aeron_spark\naeron_spark.connect("localhost:20121", conect_timeout=3)\n',
    "value": 'import aeron_spark\naeron_spark.connect("localhost:20121", tag=3)\n',
    "choice": 'import aeron_spark\naeron_spark.Server("localhost:20121", idle="lazy")\n',
    "client": 'import aeron_spark\naeron_spark.Client.to("localhost:20121", max_connections=3)\n',
    "listener": 'import aeron_spark\naeron_spark.Client.to("localhost:20121").on_stopped(lambda: None)\n',
    "awaited": 'from aeron_spark import aio\nasync def main() -> None:\n    await aio.connect("", tagg="x")\n',
}


@pytest.mark.slow
def test_wrong_options_are_found(tmp_path: Path) -> None:
    found = check(tmp_path, WRONG)
    for name in WRONG:
        assert f"{name}.py:" in found, found
    assert 'Unexpected keyword argument "conect_timeout"' in found
