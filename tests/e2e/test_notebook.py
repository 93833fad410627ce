"""The quickstart notebook: every cell but the first one of code runs, and the last of them shows a live stream."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from nbclient import NotebookClient

from aeron_spark import node
from tests.e2e.processes import ROOT, forget
from tests.leaks import SHARED_MEMORY

NOTEBOOK: Final = ROOT / "notebooks" / "quickstart.ipynb"
CELL_TIMEOUT: Final = 300  # seconds; the slowest cell takes ten on a machine that does nothing else
INSTALL: Final = "install"  # the tag of the cell with %pip


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture
def home(run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node for the notebook alone: it uses the default one, and says nothing of directories."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", str(aeron_dir))
    # The kernel's connection file would else go to the user's home.
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    yield aeron_dir
    assert node.stop(aeron_dir, force=True), "the notebook's streams were not on this node"
    forget(aeron_dir)


def test_the_notebook_is_committed_without_output() -> None:
    cells = code_cells(nbformat.read(NOTEBOOK, as_version=4))
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_the_notebook_begins_with_its_installation_and_installs_nowhere_else() -> None:
    cells = code_cells(nbformat.read(NOTEBOOK, as_version=4))
    assert cells[0].source == "%pip install -q 'aeron-spark[spark,notebooks]'"
    assert [cell.metadata.get("tags", []) for cell in cells] == [[INSTALL], *([[]] * (len(cells) - 1))]


def test_the_notebook_charts_a_live_stream(home: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # The cell with %pip would replace the source tree that is tested here by a release from the package index.
    notebook.cells = [cell for cell in notebook.cells if INSTALL not in cell.metadata.get("tags", [])]
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    pictures = [
        base64.b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 1
    assert pictures[0].startswith(b"\x89PNG")
    tables = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    assert any("JFK" in text and "delay" in text for text in tables)
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert all(origin in printed for origin in ("EWR", "JFK", "LGA")), "what was recorded is read again at the end"
