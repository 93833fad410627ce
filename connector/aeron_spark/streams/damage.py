"""The remedy that errors of damaged streams name. Pure."""

from __future__ import annotations

from typing import Final

FIND_AND_RESTORE: Final = (
    "Stop the server, and run 'aeron-spark server verify', which names the rows that are lost. Then restore the store "
    "and the archive's folder from copies of one time. The server changed nothing in the stream."
)
