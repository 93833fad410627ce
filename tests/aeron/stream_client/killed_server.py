"""``aeron-spark server`` that kills itself with SIGKILL while a purge runs.

    python -m tests.aeron.stream_client.killed_server CALL ARGUMENT...

CALL is a number of calls of functions, counted from the start of the first purge. If the purge makes fewer calls, the
server is killed before it responds. This module replaces a method of the product in this process.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

from aeron_spark.cli.main import main
from aeron_spark.streams.space import StreamSpace


def kill_in_purge(call: int) -> None:
    """Let the first purge kill this process at its function call number ``call``."""
    purge, remaining = StreamSpace.purge, call

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal remaining
        if event in ("call", "c_call"):
            remaining -= 1
            if remaining <= 0:
                name = frame.f_code.co_name if event == "call" else argument.__name__
                print(f"killed at the call of {name}", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

    def purge_until_killed(self: StreamSpace, *arguments: Any) -> None:
        sys.setprofile(count)
        purge(self, *arguments)
        sys.setprofile(None)
        print(f"killed after {call - remaining} calls", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    StreamSpace.purge = purge_until_killed


if __name__ == "__main__":
    kill_in_purge(int(sys.argv[1]))
    sys.argv = ["aeron-spark", *sys.argv[2:]]
    main()
