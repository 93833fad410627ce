"""The text for a failed query."""

from __future__ import annotations

from demo.queries import cause

FAILED = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] DemoError when perform latestOffset: Traceback (most recent call last):
  File "reader.py", line 1, in latestOffset
aeron_spark.errors.TransportError: the Aeron client of /dev/shm/x ended
 SQLSTATE: 38000
=== Streaming Query ==="""


def test_the_text_has_the_python_exception() -> None:
    assert cause(FAILED).endswith("(aeron_spark.errors.TransportError: the Aeron client of /dev/shm/x ended)")


def test_the_text_is_the_first_line_without_a_python_exception() -> None:
    assert cause("Python worker failed to connect back.\nmore") == "Python worker failed to connect back."
