from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node.paths import config_home, node_name, node_paths

HOME = {"HOME": "/home/ada"}


def test_the_defaults_are_those_of_the_product() -> None:
    places = node_paths(HOME, "ada")
    assert places.aeron_dir == Path("/dev/shm/aeron-spark-ada")
    assert places.folder == Path("/home/ada/.local/share/aeron-spark/nodes/default")
    assert places.archive_dir == places.folder / "archive"
    assert places.config_home == Path("/home/ada/.config/aeron-spark")
    assert not places.chosen


def test_xdg_variables_move_the_homes() -> None:
    environ = HOME | {"XDG_DATA_HOME": "/data", "XDG_CONFIG_HOME": "/conf"}
    assert node_paths(environ, "ada").folder == Path("/data/aeron-spark/nodes/default")
    assert config_home(environ) == Path("/conf/aeron-spark")


def test_variables_of_our_own_come_before_xdg() -> None:
    environ = HOME | {
        "XDG_DATA_HOME": "/data",
        "AERON_SPARK_DATA_HOME": "/own",
        "AERON_SPARK_CONFIG_HOME": "/keys",
        "AERON_SPARK_AERON_DIR": "/dev/shm/prices",
        "AERON_SPARK_ARCHIVE_DIR": "/big/archive",
    }
    places = node_paths(environ, "ada")
    assert places.aeron_dir == Path("/dev/shm/prices")
    assert places.archive_dir == Path("/big/archive")
    assert places.config_home == Path("/keys")
    assert places.folder.parent == Path("/own/nodes")
    assert places.chosen


def test_an_argument_comes_before_a_variable() -> None:
    environ = HOME | {"AERON_SPARK_AERON_DIR": "/dev/shm/prices"}
    assert node_paths(environ, "ada", "/dev/shm/trades").aeron_dir == Path("/dev/shm/trades")


def test_the_default_directory_named_outright_is_the_same_node() -> None:
    assert node_paths(HOME, "ada", "/dev/shm/aeron-spark-ada") == node_paths(HOME, "ada")
    assert node_paths(HOME, "ada", "/dev/shm/x/../aeron-spark-ada/") == node_paths(HOME, "ada")


def test_two_directories_of_one_name_are_two_nodes() -> None:
    assert node_name(Path("/a/prices")) != node_name(Path("/b/prices"))
    assert node_name(Path("/a/prices")).startswith("prices-")
    assert node_name(Path("/a/strange ñame/")).startswith("strange-ame-")


@pytest.mark.parametrize("text", ["prices", "./prices", "/"])
def test_a_directory_that_others_would_not_find_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"aeronDir.*\. "):
        node_paths(HOME, "ada", text)


def test_an_archive_directory_counts_as_chosen_only_where_somebody_named_it() -> None:
    """A node that runs with another one is else used as it is, as everything not asked for."""
    assert not node_paths({"HOME": "/home/me"}, "me", "/dev/shm/x").archive_chosen
    assert node_paths({"HOME": "/home/me"}, "me", "/dev/shm/x", "/disk/archive").archive_chosen
    assert node_paths({"AERON_SPARK_ARCHIVE_DIR": "/disk/archive"}, "me", "/dev/shm/x").archive_chosen
