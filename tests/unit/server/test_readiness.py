"""A server is ready while no condition has a problem; its disks keep a reserve."""

from __future__ import annotations

from pathlib import Path

from aeron_spark.node.paths import Space
from aeron_spark.server.state import Readiness
from aeron_spark.server.watch import DiskReserve

GIB = 1 << 30


def test_a_server_is_ready_when_no_condition_has_a_problem() -> None:
    problems = {"listening": "the server does not listen", "disk": ""}
    readiness = Readiness({name: lambda name=name: problems[name] for name in problems})  # type: ignore[misc]
    assert readiness.reasons == {"listening": "the server does not listen"}
    assert not readiness.is_ready
    problems["listening"] = ""
    assert readiness.is_ready
    problems["disk"] = "full"
    assert readiness.reasons == {"disk": "full"}


def test_the_disk_with_less_than_the_reserve_is_named() -> None:
    free = {"/store": 3 * GIB, "/archive": 2 * GIB}
    folders, reserved = {name.strip("/"): Path(name) for name in free}, [2 * GIB]
    reserve = DiskReserve(lambda: folders, lambda: reserved[0], lambda path: Space(str(path), free[str(path)], 9 * GIB))
    assert reserve.problem() == ""
    free["/archive"] -= 1 << 20
    assert reserve.problem() == "/archive has 2047 MiB free, less than the reserve of 2048 MiB (diskReserve)"
    assert {name: space.free for name, space in reserve.volumes().items()} == {
        "store": 3 * GIB, "archive": 2047 << 20
    }  # fmt: skip
    reserved[0] = 0
    assert reserve.problem() == ""


def test_a_folder_that_does_not_exist_yet_has_the_space_of_its_disk(tmp_path: Path) -> None:
    reserve = DiskReserve(lambda: {"store": tmp_path / "none" / "yet"}, lambda: 1)
    assert reserve.volumes()["store"].total > 0
