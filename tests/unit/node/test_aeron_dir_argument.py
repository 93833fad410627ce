"""Finding U2: a printed command line reaches the node that it is about."""

from __future__ import annotations

from pathlib import Path

from aeron_spark.node import aeron_dir_argument, paths_here


def test_only_the_default_node_needs_no_argument(tmp_path: Path) -> None:
    home = {"AERON_SPARK_DATA_HOME": str(tmp_path)}
    default = paths_here(None, None, home)
    assert aeron_dir_argument(default.aeron_dir, home) == ""
    assert aeron_dir_argument(default.disk_aeron_dir, home) == ""
    assert aeron_dir_argument("/dev/shm/my desk", home) == " --aeron-dir '/dev/shm/my desk'"
    elsewhere = home | {"AERON_SPARK_AERON_DIR": "/dev/shm/desk"}
    assert aeron_dir_argument("/dev/shm/desk", elsewhere) == " --aeron-dir /dev/shm/desk"
    assert aeron_dir_argument(default.aeron_dir, elsewhere) == f" --aeron-dir {default.aeron_dir}"
