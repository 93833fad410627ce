"""Java programs that answer cases: each reads a case from each line of its input, and writes the answer as a line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.class_data import QUICK
from tests.programs import CONNECTOR, ROOT, Program

SOURCES: Final = ROOT / "jars/spark/src/test/java/io/aeronspark/spark"


class Answers:
    """A program that runs."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def answer(self, **case: object) -> Any:
        """Return the answer of the program."""
        self._program.send(json.dumps(case))
        assert self._program.stdout is not None  # it is a pipe
        line = self._program.stdout.readline()  # ends if the program ends
        assert line, "the Java program ended"
        return json.loads(line)


@contextmanager
def java_answers(source: str) -> Iterator[Answers]:
    """Start a program of the Java tests from its source, with the jar of the package and Spark's Jackson."""
    spark = Path(str(find_spec("pyspark").origin)).parent / "jars"  # type: ignore[union-attr]
    jars = [CONNECTOR / "aeron_spark/jars/spark/aeron-spark-jvm.jar"]
    jars += (jar for name in ("annotations", "core", "databind") for jar in spark.glob(f"jackson-{name}-*.jar"))
    command = ["java", QUICK, "-XX:+UseSerialGC", "-cp", ":".join(map(str, jars)), str(SOURCES / source)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with Program(command, text=True, **pipes) as program:
        yield Answers(program)
