"""What the demo says of a query that failed."""

from __future__ import annotations

from demo.queries import cause

FAILED = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when perform latestOffset: Traceback (most recent call last):
  File "reader.py", line 1, in latestOffset
aeron_spark.errors.TransportError: the Aeron client of /dev/shm/x ended
 SQLSTATE: 38000
=== Streaming Query ==="""


def test_the_line_of_the_python_that_failed_is_told() -> None:
    assert cause(FAILED).endswith("(aeron_spark.errors.TransportError: the Aeron client of /dev/shm/x ended)")


def test_without_one_the_first_line_is() -> None:
    assert cause("Python worker failed to connect back.\nmore") == "Python worker failed to connect back."
