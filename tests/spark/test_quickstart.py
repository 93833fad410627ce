"""The cells of the quickstart run in IPython, with the session of the other tests, and its outputs are right.

``tests/e2e/test_notebook.py`` runs it in a kernel with a separate Spark, which costs four times as much.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from matplotlib import pyplot
from pyspark.sql import SparkSession
from traitlets.config import Config

from aeron_spark.node import NodeHandle
from tests.e2e.test_notebook import INSTALL, PNG, QUICKSTART, code_cells
from tests.spark.queries import patient_starts

STREAM: Final = "9501"  # no other test uses it
STOP: Final = "spark.stop()"  # the other tests need the session
SECONDS: Final = "SECONDS = 8"  # which the chart of a reader shows at least


class Shell(InteractiveShell):
    """An IPython for ``%matplotlib inline``, which needs no window."""

    def enable_gui(self, gui: str | None = None) -> None:
        assert gui is None


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    """An IPython in this process, without the user's history."""
    settings = Config()
    settings.HistoryManager.enabled = False
    pyplot.close("all")  # of the documentation's code: the notebook would show these figures, too
    yield Shell.instance(config=settings)
    Shell.clear_instance()


@pytest.fixture(scope="module")
def restored_settings(spark: SparkSession) -> Iterator[None]:
    """Restore the settings of the shared session that the notebook changes."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    yield
    spark.conf.set(name, before)
    spark.sparkContext.setLogLevel("OFF")


@dataclass(frozen=True)
class Outputs:
    """The printed text and the displayed values of all cells."""

    text: str
    displayed: list[RichOutput]


@pytest.fixture(scope="module")
def outputs(shell: InteractiveShell, restored_settings: None, shared_node: NodeHandle) -> Outputs:
    """The outputs of the quickstart; a shared fixture, because two queries and a chart exceed the limit of a test."""
    text, displayed = "", []
    replaced = {'"1001"': f'"{STREAM}"', STOP: "", SECONDS: "SECONDS = 2"}
    cells = [cell["source"] for cell in code_cells(QUICKSTART) if INSTALL not in cell["metadata"].get("tags", [])]
    for old, new in replaced.items():
        assert sum(old in cell for cell in cells) == 1, f"{old} is not in one cell"
        cells = [cell.replace(old, new) for cell in cells]
    for cell in cells:
        with capture_output() as captured, patient_starts():
            result = shell.run_cell(cell)
        result.raise_error()
        text += captured.stdout
        displayed += captured.outputs
    return Outputs(text, displayed)


def test_the_quickstart_charts_a_live_stream(outputs: Outputs, spark: SparkSession) -> None:
    pictures = [output.data["image/png"] for output in outputs.displayed if "image/png" in output.data]
    assert [base64.b64decode(one)[: len(PNG)] for one in pictures] == [PNG]
    for word in ("JFK", "delay"):
        assert word in outputs.text, "the table of the rows per second is not there"
    assert all(origin in outputs.text for origin in ("EWR", "JFK", "LGA")), "the recorded flights were not read again"
    assert not spark.streams.active, "the notebook did not stop its queries"
