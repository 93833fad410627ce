"""The Python of README.md and docs/ passes ``mypy --strict``, as a program of a user does.

``spark`` in a block is the session of a notebook. Pandas and PyArrow have no types of their own; those of others refuse
some correct calls.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import pytest

from tests.pages import pages, sections
from tests.programs import ROOT

SPARK: Final = "from pyspark.sql import SparkSession\n\nspark: SparkSession\n"
SETTINGS: Final = f"""\
[mypy]
strict = True
mypy_path = {ROOT / "connector"}
[mypy-pandas.*,pyarrow.*]
ignore_missing_imports = True
follow_imports = skip
follow_imports_for_stubs = True
[mypy-jpype.*,prometheus_client.*]
ignore_missing_imports = True
"""


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


WRONG: Final = {
    "wrong_name": 'import aeron_spark\naeron_spark.connect("localhost:20121", conect_timeout=3)\n',
    "wrong_value": 'import aeron_spark\naeron_spark.connect("localhost:20121", tag=3)\n',
    "wrong_choice": 'import aeron_spark\naeron_spark.Server("localhost:20121", idle="lazy")\n',
    "wrong_client": 'import aeron_spark\naeron_spark.Client.to("localhost:20121", max_connections=3)\n',
    "wrong_listener": 'import aeron_spark\naeron_spark.Client.to("localhost:20121").on_stopped(lambda: None)\n',
    "wrong_awaited": 'from aeron_spark import aio\nasync def main() -> None:\n    await aio.connect("", tagg="x")\n',
    "wrong_stream": "from aeron_spark import aio\nasync def use(one: aio.Client) -> None:\n    await one.stream(3)\n",
}

OPERATIONS: Final = """\
from typing_extensions import assert_type
from aeron_spark import Client, StreamInfo, aio
from aeron_spark.wire.stream_requests import PurgedPartition


def use(client: Client) -> None:
    assert_type(client.reopen_stream("prices"), StreamInfo)


async def use_awaited(client: aio.Client) -> None:
    assert_type(await client.reopen_stream("prices"), StreamInfo)
    assert_type(await client.purge_stream("prices", 4096, wait=3.0), list[PurgedPartition])
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The errors that mypy finds in the programs of the pages, in wrong ones and in OPERATIONS, in one run."""
    folder, cache = tmp_path_factory.mktemp("programs"), ROOT / ".mypy_cache" / "pages"
    settings = folder / "mypy.ini"
    settings.write_text(SETTINGS)
    programs = {**page_programs(), **WRONG, "operations": OPERATIONS}
    for name, code in programs.items():
        (folder / f"{name}.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(cache)]
    files = [f"{name}.py" for name in programs]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, timeout=300)
    return [line for line in (done.stdout + done.stderr).splitlines() if ": note: " not in line]


@pytest.mark.slow
def test_operations_on_streams_have_their_types_also_awaited(errors: list[str]) -> None:
    assert [line for line in errors if line.startswith("operations.py")] == []


@pytest.mark.slow
def test_the_python_of_the_pages_passes_mypy_strict(errors: list[str]) -> None:
    assert {"readme_md_the_secure_server", "docs_python_client_md_asyncio"} <= set(page_programs())
    assert [line for line in errors[:-1] if not line.startswith((*WRONG, "operations"))] == []


@pytest.mark.slow
def test_wrong_options_are_found(errors: list[str]) -> None:
    assert {line.partition(".py:")[0] for line in errors[:-1]} >= set(WRONG)
    assert any('Unexpected keyword argument "conect_timeout"' in line for line in errors)
    assert errors[-1].startswith("Found ")
