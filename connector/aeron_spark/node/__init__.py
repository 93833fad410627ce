"""Runs this machine's media driver and archive: one node per directory, shared by all processes, stopped when unused.

Programs call ``ensure``, which starts the node if necessary and returns a handle. The commands of ``aeron-spark node``
call ``start``, ``stop`` and ``status``. Importing this package starts nothing and needs no Java.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aeron_spark.node.lifecycle import (
    START_TIMEOUT,
    STOP_TIMEOUT,
    aeron_dir_argument,
    ensure,
    local_node_paths,
    running_aeron_dir,
    stop,
)
from aeron_spark.node.paths import NodePaths, config_home, data_home
from aeron_spark.node.settings import SETTING_NAMES, NodeSettings
from aeron_spark.node.state_files import NodeHandle
from aeron_spark.node.status import NodeStatus, status

__all__ = [
    "SETTING_NAMES",
    "START_TIMEOUT",
    "STOP_TIMEOUT",
    "NodeHandle",
    "NodePaths",
    "NodeSettings",
    "NodeStatus",
    "aeron_dir_argument",
    "config_home",
    "data_home",
    "ensure",
    "local_node_paths",
    "running_aeron_dir",
    "start",
    "status",
    "stop",
]


def start(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    archive_dir: str | os.PathLike[str] | None = None,
    stay: bool = True,
    timeout: float = START_TIMEOUT,
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> NodeStatus:
    """Start the node of ``aeron_dir`` if it does not run. With ``stay`` it runs until :func:`stop`, even if unused."""
    with ensure(aeron_dir, archive_dir=archive_dir, timeout=timeout, environ=environ, **settings) as handle:
        node = local_node_paths(aeron_dir, archive_dir, environ)
        if stay and not handle.foreign:
            node.stay.touch(mode=0o600)
        return status(aeron_dir, environ=environ)
