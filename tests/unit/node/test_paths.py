from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node import paths as paths_module
from aeron_spark.node.paths import config_home, node_name, node_paths

HOME = {"HOME": "/home/ada"}


def test_default_paths() -> None:
    paths = node_paths(HOME, "ada")
    assert paths.aeron_dir == Path("/dev/shm/aeron-spark-ada")
    assert paths.folder == Path("/home/ada/.local/share/aeron-spark/nodes/default")
    assert paths.archive_dir == paths.folder / "archive"
    assert paths.config_home == Path("/home/ada/.config/aeron-spark")
    assert not paths.chosen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_default_directory_that_another_user_made_first_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths_module, "SHARED_MEMORY", tmp_path)
    for name in ("aeron-spark-ada", "aeron-spark-ada-0123456789abcdef"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, 65534, 65534)
    own = node_paths(HOME, "ada")
    assert re.fullmatch("aeron-spark-ada-[0-9a-f]{16}", own.aeron_dir.name)
    assert not own.chosen
    own.aeron_dir.mkdir()
    assert node_paths(HOME, "ada") == own  # every process finds the one that the first has made
    (tmp_path / "aeron-spark-ada").rmdir()
    assert node_paths(HOME, "ada") == own
    assert node_paths(HOME, "ada", tmp_path / "aeron-spark-ada").chosen


def test_xdg_variables_move_the_folders() -> None:
    environ = HOME | {"XDG_DATA_HOME": "/data", "XDG_CONFIG_HOME": "/conf"}
    assert node_paths(environ, "ada").folder == Path("/data/aeron-spark/nodes/default")
    assert config_home(environ) == Path("/conf/aeron-spark")


def test_variables_of_this_package_come_before_xdg() -> None:
    environ = HOME | {
        "XDG_DATA_HOME": "/data",
        "AERON_SPARK_DATA_HOME": "/own",
        "AERON_SPARK_CONFIG_HOME": "/keys",
        "AERON_SPARK_AERON_DIR": "/dev/shm/prices",
        "AERON_SPARK_ARCHIVE_DIR": "/big/archive",
    }
    paths = node_paths(environ, "ada")
    assert paths.aeron_dir == Path("/dev/shm/prices")
    assert paths.archive_dir == Path("/big/archive")
    assert paths.config_home == Path("/keys")
    assert paths.folder.parent == Path("/own/nodes")
    assert paths.chosen


def test_an_argument_comes_before_a_variable() -> None:
    environ = HOME | {"AERON_SPARK_AERON_DIR": "/dev/shm/prices"}
    assert node_paths(environ, "ada", "/dev/shm/trades").aeron_dir == Path("/dev/shm/trades")


def test_an_explicit_default_directory_is_the_default_node() -> None:
    assert node_paths(HOME, "ada", "/dev/shm/aeron-spark-ada") == node_paths(HOME, "ada")
    assert node_paths(HOME, "ada", "/dev/shm/x/../aeron-spark-ada/") == node_paths(HOME, "ada")


def test_two_directories_with_the_same_name_are_two_nodes() -> None:
    assert node_name(Path("/a/prices")) != node_name(Path("/b/prices"))
    assert node_name(Path("/a/prices")).startswith("prices-")
    assert node_name(Path("/a/strange ñame/")).startswith("strange-ame-")


@pytest.mark.parametrize("text", ["prices", "./prices", "/"])
def test_a_relative_path_and_the_root_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"aeronDir.*\. "):
        node_paths(HOME, "ada", text)


def test_an_archive_directory_is_chosen_if_an_argument_or_a_variable_names_it() -> None:
    """A running node with another archive directory is used only if the caller did not choose one."""
    assert not node_paths({"HOME": "/home/me"}, "me", "/dev/shm/x").archive_chosen
    assert node_paths({"HOME": "/home/me"}, "me", "/dev/shm/x", "/disk/archive").archive_chosen
    assert node_paths({"AERON_SPARK_ARCHIVE_DIR": "/disk/archive"}, "me", "/dev/shm/x").archive_chosen
