"""The job ``retention`` purges before the slowest checkpoint, and keeps what a checkpoint does not know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aeron_spark.jobs.retention import Passed, command_line, plan
from aeron_spark.log.api import RecordingState
from aeron_spark.log.epochs import Epochs
from aeron_spark.log.offsets import Offset

STATES = [
    RecordingState("embedded/7", "00000007", 1024, 8192, True, 65536),
    RecordingState("embedded/8", "00000008", 0, 4096, True, 65536),
]


def offset(**positions: int) -> Offset:
    """Return an offset of the recordings ``r7`` and ``r8``."""
    known = {f"embedded/{name[1:]}": at for name, at in positions.items()}
    return Offset(known, {key: f"0000000{key[-1]}" for key in known})


def test_the_slowest_checkpoint_decides_for_each_recording() -> None:
    found = plan(STATES, [offset(r7=8192, r8=1024), offset(r7=4096, r8=4096)], keep=0)
    assert found == [Passed("embedded/7", 1024, 4096), Passed("embedded/8", 0, 1024)]
    assert [one.bytes for one in found] == [3072, 1024]


def test_some_bytes_before_the_passed_position_are_kept() -> None:
    assert [one.position for one in plan(STATES, [offset(r7=4096, r8=1024)], keep=2048)] == [2048, 0]


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        (offset(r8=4096), "a checkpoint does not have it"),
        (replace(offset(r7=8192, r8=4096), fingerprints={"embedded/7": "ffffffff", "embedded/8": "00000008"}),
         "a checkpoint has another recording of this id"),
    ],
)  # fmt: skip
def test_a_recording_that_a_checkpoint_does_not_have_is_kept(checkpoint: Offset, reason: str) -> None:
    found = plan(STATES, [offset(r7=8192, r8=4096), checkpoint], keep=0)
    assert found == [Passed("embedded/7", 1024, 1024, reason), Passed("embedded/8", 0, 4096)]
    assert found[0].bytes == 0


def test_a_partition_of_a_restored_store_is_kept_if_the_checkpoint_is_of_a_later_state() -> None:
    restored = replace(STATES[0], epochs=Epochs(((1, 0), (3, 2048))))
    later = replace(offset(r7=4096), epochs={"embedded/7": Epochs(((1, 0), (2, 2048)))})
    (found,) = plan([restored], [later], keep=0)
    assert (found.bytes, found.reason) == (0, "a checkpoint is of a later state than this restored stream")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "the following arguments are required: --checkpoint"),
        (["--checkpoint=/c", "--option=streamId=7", "--keep=much"], "--keep is 'much', expected"),
        (["--checkpoint=/c", "--option=streamId=7,8"], "option 'streamId' is '7,8', expected one stream"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line().parse_args(["--option=channel=aeron:ipc", *arguments])
    assert error in capsys.readouterr().err
