"""A printed command line reaches the node of its text."""

from __future__ import annotations

from pathlib import Path

from aeron_spark.node import aeron_dir_argument, local_node_paths


def test_only_the_default_node_needs_no_argument(tmp_path: Path) -> None:
    environ = {"AERON_SPARK_DATA_HOME": str(tmp_path)}
    default = local_node_paths(None, None, environ)
    assert aeron_dir_argument(default.aeron_dir, environ) == ""
    assert aeron_dir_argument(default.disk_aeron_dir, environ) == ""
    assert aeron_dir_argument("/dev/shm/my driver", environ) == " --aeron-dir '/dev/shm/my driver'"
    with_variable = environ | {"AERON_SPARK_AERON_DIR": "/dev/shm/prices"}
    assert aeron_dir_argument("/dev/shm/prices", with_variable) == " --aeron-dir /dev/shm/prices"
    assert aeron_dir_argument(default.aeron_dir, with_variable) == f" --aeron-dir {default.aeron_dir}"
