"""This machine's own media driver and archive: one a directory, shared by all processes, stopped when unused.

``ensure`` is what a program calls: it returns a handle on the node, started when there was none. ``start``, ``stop``
and ``status`` are what ``aeron-spark node`` does. Importing this package starts nothing and needs no Java.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aeron_spark.node.handle import NodeHandle
from aeron_spark.node.paths import NodePaths, config_home, data_home
from aeron_spark.node.settings import SETTING_NAMES, NodeSettings
from aeron_spark.node.starting import START_TIMEOUT, aeron_dir_argument, ensure, paths_here
from aeron_spark.node.status import NodeStatus, status
from aeron_spark.node.stopping import STOP_TIMEOUT, stop

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
    "paths_here",
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
    **asked: Any,
) -> NodeStatus:
    """Start the node of ``aeron_dir`` unless it runs, and let it go; ``stay`` keeps it until it is stopped by hand."""
    with ensure(aeron_dir, archive_dir=archive_dir, timeout=timeout, environ=environ, **asked) as handle:
        places = paths_here(aeron_dir, archive_dir, environ)
        if stay and not handle.foreign:
            places.stay.touch(mode=0o600)
        return status(aeron_dir, environ=environ)
