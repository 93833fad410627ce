"""The notebooks: every code cell except the first one runs, and the outputs have the expected results."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from aeron_spark import node
from aeron_spark.jobs.session import START_FAILURE
from tests.nodes import new_aeron_dir, remove_node
from tests.ports import free_address
from tests.programs import ROOT
from tests.spark_conf import write_defaults

QUICKSTART: Final = ROOT / "notebooks" / "quickstart.ipynb"
SECURE: Final = ROOT / "notebooks" / "secure_producer.ipynb"
ORDER_BOOK: Final = ROOT / "notebooks" / "order_book.ipynb"
DASHBOARD: Final = ROOT / "notebooks" / "live_dashboard.ipynb"
OPERATING: Final = ROOT / "notebooks" / "operating.ipynb"
DATABRICKS: Final = ROOT / "notebooks" / "databricks.ipynb"
NOTEBOOKS: Final = sorted((ROOT / "notebooks").glob("*.ipynb"))
CLASSIC: Final = 'SparkSession.builder.master("local[2]")'
SESSIONS: Final = {"classic": {}, "connect": {CLASSIC: 'SparkSession.builder.remote("local[2]")'}}
SERVER: Final = 'SERVER = "127.0.0.1:20121"'
PNG: Final = b"\x89PNG"
CELL_TIMEOUT_S: Final = 300  # the slowest cell takes ten seconds on an idle machine
CAUSE_LINES: Final = 6  # as many as the list of failed tests has
RUN_ATTEMPTS: Final = 3
INSTALL: Final = "install"  # the tag of the cell with %pip
OF_DATABRICKS: Final = "databricks"  # the tag of a cell that runs on Databricks only


class StartTooSlow(AssertionError):
    """Spark ended its wait for the Python process of a query."""


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook, each with one text as its source."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    return [cell | {"source": "".join(cell["source"])} for cell in cells]


@contextmanager
def separate_node(run_name: str, folder: Path) -> Iterator[None]:
    """Let a notebook in the block use a separate node, because it uses the default directories."""
    aeron_dir = new_aeron_dir(run_name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AERON_SPARK_AERON_DIR", str(aeron_dir))
        # otherwise the kernel's connection file is in the user's home
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        patch.setenv("SPARK_CONF_DIR", str(write_defaults(folder / "conf")))
        try:
            yield
            assert node.stop(aeron_dir, force=True), "the notebook's streams were not on this node"
        finally:
            remove_node(aeron_dir)


def run(path: Path, run_name: str, folder: Path, replacements: Mapping[str, str] = MappingProxyType({})) -> list[Any]:
    """Run a notebook on a separate node, and return the outputs of its cells.

    Spark waits 10 s for the Python process of a query, and has no setting for it. The process needs 1.6 s of processor
    time on a busy machine. If Spark's wait ends, the notebook runs again, at most ``RUN_ATTEMPTS`` times in all, as
    docs/spark.md advises.
    """
    attempt = 0
    while True:
        attempt += 1
        run_folder = folder / str(attempt)
        run_folder.mkdir()
        try:
            with separate_node(run_name, run_folder):
                return execute(path, run_folder, replacements)
        except StartTooSlow as error:
            if attempt == RUN_ATTEMPTS:
                raise
            print(f"attempt {attempt} of {RUN_ATTEMPTS}: {error}")


def execute(path: Path, folder: Path, replacements: Mapping[str, str]) -> list[Any]:
    """Run a notebook with some of its code replaced, and return the outputs of its cells."""
    # The import takes seconds of processor time, and each worker of `make test` imports this module.
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    # the cell with %pip would replace the tested source tree by a release from the package index
    notebook.cells = [cell for cell in notebook.cells if not cell.metadata.get("tags", [])]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in replacements.items():
        assert sum(old in cell.source for cell in code) == 1, f"{old} is not in one cell"
        for cell in code:
            cell.source = cell.source.replace(old, new)
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        # without the cell's traceback, which is long and has its cause in the middle
        kind = StartTooSlow if START_FAILURE in error.evalue else AssertionError
        raise kind(f"a cell of {path.name} failed: {error.ename}: {causes(error.evalue)}") from None
    return [output for cell in code for output in cell.outputs]


def causes(message: str) -> str:
    """Return the first line of Spark's message, and its last lines, which have the cause; without Java's frames."""
    lines = [line for line in message.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return "\n".join(lines if len(lines) <= CAUSE_LINES else [lines[0], *lines[1 - CAUSE_LINES :]])


def pictures(outputs: list[Any]) -> list[bytes]:
    return [base64.b64decode(one.data["image/png"]) for one in outputs if "image/png" in one.get("data", {})]


def tables(outputs: list[Any]) -> list[str]:
    return [one.data["text/plain"] for one in outputs if one.output_type == "execute_result"]


def printed(outputs: list[Any]) -> str:
    return "".join(one.text for one in outputs if one.output_type == "stream" and one.name == "stdout")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_output(path: Path) -> None:
    cells = code_cells(path)
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_installs_the_package_in_its_first_cell_only(path: Path) -> None:
    cells = code_cells(path)
    assert cells[0]["source"] == "%pip install -q 'aeron-spark[spark,notebooks]'"
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    assert tags[0] == [INSTALL]
    assert [OF_DATABRICKS] in tags[1:] if path == DATABRICKS else tags[1:] == [[]] * (len(cells) - 1)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_linked_from_the_readme_and_a_page(path: Path) -> None:
    assert f"notebooks/{path.name}" in (ROOT / "README.md").read_text()
    assert any(f"../notebooks/{path.name}" in page.read_text() for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_one_session_and_uses_only_what_spark_connect_has(path: Path) -> None:
    text = "\n".join(cell["source"] for cell in code_cells(path))
    assert text.count(CLASSIC) == 1
    assert "sparkContext" not in text
    assert "_jvm" not in text


@pytest.mark.parametrize(
    ("errors", "runs", "raised"),
    [
        ([], 1, None),
        ([StartTooSlow()], 2, None),
        ([StartTooSlow()] * RUN_ATTEMPTS, RUN_ATTEMPTS, StartTooSlow),
        ([AssertionError()], 1, AssertionError),
    ],
    ids=["no error", "one slow start", "slow starts only", "another error"],
)
def test_only_a_slow_start_of_spark_repeats_a_notebook(
    errors: list[Exception], runs: int, raised: type[Exception] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def fake_execute(path: Path, folder: Path, replacements: Mapping[str, str]) -> list[Any]:
        folders.append(folder)
        if len(folders) <= len(errors):
            raise errors[len(folders) - 1]
        return ["output"]

    monkeypatch.setattr("tests.e2e.test_notebook.execute", fake_execute)
    monkeypatch.setattr("tests.e2e.test_notebook.separate_node", lambda run_name, folder: nullcontext())
    if raised is None:
        assert run(QUICKSTART, "run", tmp_path) == ["output"]
    else:
        with pytest.raises(raised):
            run(QUICKSTART, "run", tmp_path)
    assert len(set(folders)) == len(folders) == runs


@pytest.mark.full("a separate kernel and Spark; tests/spark/test_quickstart.py runs another notebook")
@pytest.mark.parametrize("session", SESSIONS)
def test_the_secure_producer_loses_no_reading_while_its_server_is_stopped(
    session: str, run_name: str, tmp_path: Path
) -> None:
    outputs = run(SECURE, run_name, tmp_path, {SERVER: f'SERVER = "{free_address()}"', **SESSIONS[session]})
    (picture,) = pictures(outputs)
    assert picture.startswith(PNG)
    assert any("kitchen" in text and "temperature" in text for text in tables(outputs))
    text = printed(outputs)
    buffered = re.search(r"(\d+) transactions are in the buffer folder", text)
    assert buffered is not None, text
    assert int(buffered[1]) > 0
    compared = re.search(r"(\d+) readings written, (\d+) found, (\d+) stored twice", text)
    assert compared is not None, text
    written, found, twice = map(int, compared.groups())
    assert (found, twice) == (written, 0)
    assert written > 40


@pytest.mark.full("a separate kernel and Spark; tests/spark/test_quickstart.py runs another notebook")
@pytest.mark.parametrize("session", SESSIONS)
def test_the_order_book_has_the_prices_and_depths_of_its_messages(session: str, run_name: str, tmp_path: Path) -> None:
    outputs = run(ORDER_BOOK, run_name, tmp_path, SESSIONS[session])
    (picture,) = pictures(outputs)
    assert picture.startswith(PNG)
    text = printed(outputs)
    for column in ("bids: array", "price: decimal(19,2)", "size: long", "at: timestamp"):
        assert column in text, f"the columns have no {column!r}"
    assert "600 books, spread from 0.02 to 0.02" in text
    assert "60 trades of 1800 shares" in text
    best, depth, trades = tables(outputs)
    last = "2026-11-23 14:30:59.900"
    assert last_words(best) == [*last.split(), "99.99", "100.01", "1630", "1660", "0.02"]
    assert [line.split()[1:] for line in depth.splitlines()[1:]] == [
        ["bid", "99.95", "548"], ["bid", "99.96", "437"], ["bid", "99.97", "326"], ["bid", "99.98", "215"],
        ["bid", "99.99", "104"], ["ask", "100.01", "158"], ["ask", "100.02", "209"], ["ask", "100.03", "320"],
        ["ask", "100.04", "431"], ["ask", "100.05", "542"],
    ]  # fmt: skip
    assert last_words(trades) == ["2026-11-23", "14:30:59.500", "ACME", "SELL", "100.00", "45"]


@pytest.mark.full("a separate kernel and Spark; tests/spark/test_quickstart.py runs another notebook")
@pytest.mark.parametrize("session", SESSIONS)
def test_the_quickstart_runs_in_a_kernel(session: str, run_name: str, tmp_path: Path) -> None:
    outputs = run(QUICKSTART, run_name, tmp_path, SESSIONS[session])
    (picture,) = pictures(outputs)
    assert picture.startswith(PNG)
    assert all(origin in printed(outputs) for origin in ("EWR", "JFK", "LGA"))


@pytest.mark.full("a separate kernel and Spark; tests/spark/test_quickstart.py runs another notebook")
@pytest.mark.parametrize("session", SESSIONS)
def test_the_dashboard_draws_its_chart_again_while_the_stream_grows(
    session: str, run_name: str, tmp_path: Path
) -> None:
    outputs = run(DASHBOARD, run_name, tmp_path, {"SECONDS = 60": "SECONDS = 4", **SESSIONS[session]})
    (picture,) = pictures(outputs)  # the display has its last state
    assert picture.startswith(PNG)
    drawn = re.search(r"(\d+) charts of (\d+) rows", printed(outputs))
    assert drawn is not None
    charts, rows = map(int, drawn.groups())
    assert charts >= 3
    totals = re.findall(r"\|\s*(?:ACME|EMCA|MACE)\|\s*(\d+)\|", printed(outputs))
    assert len(totals) == 3
    assert sum(map(int, totals)) >= rows > 0


@pytest.mark.full("a separate kernel and Spark; tests/spark/test_quickstart.py runs another notebook")
@pytest.mark.parametrize("session", SESSIONS)
def test_the_notebook_for_operators_measures_its_reads_and_frees_the_space(
    session: str, run_name: str, tmp_path: Path
) -> None:
    outputs = run(OPERATING, run_name, tmp_path, SESSIONS[session])
    (picture,) = pictures(outputs)
    assert picture.startswith(PNG)
    text = "\n".join(tables(outputs))
    for word in ("the value, by replay", "lag in bytes", "64m", "16m"):
        assert word in text
    assert printed(outputs).endswith("0 recordings left\n")


@pytest.mark.full("a separate kernel and Spark; tests/spark/test_quickstart.py runs another notebook")
@pytest.mark.parametrize("session", SESSIONS)
def test_the_cells_that_need_no_databricks_copy_a_stream_into_a_table(
    session: str, run_name: str, tmp_path: Path
) -> None:
    outputs = run(DATABRICKS, run_name, tmp_path, {SERVER: f'SERVER = "{free_address()}"', **SESSIONS[session]})
    assert "900 rows in flights" in printed(outputs)
    assert [line.split()[1:3] for line in tables(outputs)[-1].splitlines()[1:]] == [
        [origin, "300"] for origin in ("EWR", "JFK", "LGA")
    ]


def last_words(table: str) -> list[str]:
    """Return the cells of the last line of a table, without its index."""
    return table.splitlines()[-1].split()[1:]
