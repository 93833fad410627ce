"""The remote calls of named streams: their number and their names."""

from __future__ import annotations

from typing import Final

from aeron_spark.protocol.rpc_objects import FIRST_SERVICE

STREAMS: Final = FIRST_SERVICE + 1  # the number of the object that serves them
METHODS: Final = (
    "list_all", "describe", "inspect", "create", "delete", "purge", "states", "boundary", "position_at", "wait_beyond",
    "lease", "read", "stop", "last", "enter", "first_lost", "open_stage", "finish_stage", "commit", "commit_empty",
    "abort", "last_with_token",
)  # fmt: skip
