"""``streams`` on the direct route: list, describe, purge and delete."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from tests.cli.conftest import BytesResult, begin, pipe, run
from tests.cli.test_send_receive import send, to

SEGMENT = 65536  # bytes, a setting of the module's node
TIMEOUT_S = 60.0  # for an operation of another process on a slow machine
FRAME = 1056  # bytes in the log of a message of 1,000 bytes, with header and alignment


def thousand(count: int) -> bytes:
    return b"".join(b"%09d" % number + b"x" * 991 + b"\n" for number in range(count))


def streams(*arguments: str) -> BytesResult:
    return pipe(b"", "streams", *arguments)


def described(stream_id: int, aeron_dir: Path) -> Any:
    (one,) = streams("describe", *to(stream_id, aeron_dir, "--json")).lines
    return one


def stopped(stream_id: int, aeron_dir: Path) -> Any:
    """Describe a stream when the archive has noticed that its publisher has ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while (found := described(stream_id, aeron_dir))["active"]:  # each call runs a command
        assert time.monotonic() < deadline, found
    return found


def wait_for_two_segments(stream_id: int, aeron_dir: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        done = streams("describe", *to(stream_id, aeron_dir, "--json"))
        if done.code == 0 and done.lines[0]["details"][0]["end"] > 2 * SEGMENT:
            return
        assert time.monotonic() < deadline, done


def test_the_list_has_all_streams_or_those_with_a_channel_or_id(shared: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        udp = f"aeron:udp?endpoint=localhost:{free.getsockname()[1]}"
    send(b"1\n2\n", 1201, shared)
    send(b"3\n", 1201, shared)
    send(b"4\n", 1202, shared)
    send(b"5\n", 1201, shared, channel=udp)
    listed = streams("list", "--aeron-dir", str(shared), "--json")
    assert listed.code == 0, listed.err
    found = {(one["channel"], one["stream_id"]): one for one in listed.lines}
    assert found.keys() >= {("aeron:ipc", 1201), ("aeron:ipc", 1202), (udp, 1201)}
    one = found["aeron:ipc", 1201]
    assert (one["archive"], one["recordings"], one["bytes"]) == ("embedded", 2, 3 * 64)
    assert one["newest"] is None or one["oldest"] < one["newest"]
    by_id = streams("list", "--aeron-dir", str(shared), "--stream-id", "1201", "--json").lines
    assert sorted(one["channel"] for one in by_id) == ["aeron:ipc", udp]
    same = f"{udp}|mtu=1408|alias=other"  # mtu and alias do not make another stream
    by_channel = streams("list", "--aeron-dir", str(shared), "--channel", same, "--json").lines
    assert [(one["channel"], one["stream_id"]) for one in by_channel] == [(udp, 1201)]
    table = run("streams", "list", "--aeron-dir", str(shared), "--stream-id", "1202").out
    assert "aeron:ipc" in table
    assert "\taeron:ipc\t1202\t" in table
    assert run("streams", "list", "--aeron-dir", str(shared), "--stream-id", "999").err == "no streams\n"


def test_describe_shows_recordings_payload_and_columns(shared: Path) -> None:
    send(thousand(100), 1203, shared)
    found = stopped(1203, shared)
    assert (found["payload"], found["schema"], found["retention"]) == ("raw", None, None)
    (recording,) = found["details"]
    assert (recording["start"], recording["active"]) == (0, False)
    assert 0 < recording["end"] - 100 * FRAME < FRAME  # the end of the first term is padding
    assert (recording["segments"], recording["segment_length"]) == (2, SEGMENT)
    assert recording["began"] <= recording["ended"]
    send(b'{"id": 1, "name": "a"}\n', 1204, shared, "--format", "json")
    rows = described(1204, shared)
    assert rows["payload"] == "arrow"
    assert rows["schema"] == [
        {"name": "id", "type": "int64", "nullable": True},
        {"name": "name", "type": "string", "nullable": True},
    ]
    send(b"x\n", 1205, shared, "--payload", "framed")
    assert described(1205, shared)["payload"] == "framed"
    shown = run("streams", "describe", *to(1204, shared)).out
    for text in ("stream id\t1204", "channel\taeron:ipc", "payload", "arrow", "int64", "until purged", "recording\t"):
        assert text in shown


def test_a_stream_is_found_by_the_alias_of_its_channel(shared: Path) -> None:
    send(b"x\n", 1206, shared, channel="aeron:ipc?alias=prices")
    (found,) = streams("describe", "prices", "--aeron-dir", str(shared), "--json").lines
    assert (found["channel"], found["stream_id"]) == ("aeron:ipc?alias=prices", 1206)
    wrong = streams("describe", "prises", "--aeron-dir", str(shared))
    assert wrong.code == 1
    assert "no recorded channel has the alias 'prises'. Did you mean 'prices'?" in wrong.err


def test_a_stream_without_a_recording_cannot_be_described(shared: Path) -> None:
    done = streams("describe", *to(1207, shared))
    assert (done.code, done.out) == (1, b"")
    assert (
        "stream 1207 of aeron:ipc has no recording. 'aeron-spark streams list' shows the recorded streams." in done.err
    )


def test_a_purge_deletes_whole_segments_before_a_position(shared: Path) -> None:
    send(thousand(300), 1208, shared)
    end = stopped(1208, shared)["details"][0]["end"]
    assert 4 * SEGMENT < end < 5 * SEGMENT
    before = str(2 * SEGMENT + 100)
    (plan,) = streams("purge", *to(1208, shared, "--before", before, "--dry-run", "--json")).lines
    expected = {"start": 0, "new_start": 2 * SEGMENT, "segments": 2, "bytes": 2 * SEGMENT}
    assert plan | expected | {"purged": False} == plan
    unconfirmed = streams("purge", *to(1208, shared, "--before", before))
    assert unconfirmed.code == 2
    assert "confirmation is needed, but standard input is not a terminal. Add --yes" in unconfirmed.err
    assert described(1208, shared)["details"][0]["start"] == 0
    (done,) = streams("purge", *to(1208, shared, "--before", before, "--yes", "--json")).lines
    assert done == plan | {"purged": True}
    after = described(1208, shared)["details"][0]
    assert (after["start"], after["end"], after["segments"]) == (2 * SEGMENT, end, 3)
    numbers = [int(line[:9]) for line in pipe(b"", "receive", *to(1208, shared)).out.splitlines()]
    assert numbers == list(range(300 - len(numbers), 300))
    assert len(numbers) >= (end - 2 * SEGMENT) // FRAME
    (again,) = streams("purge", *to(1208, shared, "--before", before, "--yes", "--json")).lines
    assert (again["segments"], again["purged"]) == (0, False)


def test_a_purge_keeps_the_given_size_and_always_the_last_segment(shared: Path) -> None:
    send(thousand(200), 1209, shared)
    end = stopped(1209, shared)["details"][0]["end"]
    (kept,) = streams("purge", *to(1209, shared, "--keep", "100k", "--yes", "--json")).lines
    assert kept["new_start"] == SEGMENT
    assert end - kept["new_start"] >= 100 * 1024
    (rest,) = streams("purge", *to(1209, shared, "--keep", "0", "--yes", "--json")).lines
    assert rest["new_start"] == end // SEGMENT * SEGMENT
    assert pipe(b"", "receive", *to(1209, shared)).out.splitlines()[-1].startswith(b"000000199")


def test_a_purge_by_time_uses_publish_times_and_the_end_of_a_recording(shared: Path) -> None:
    send(thousand(150), 1210, shared)
    stopped(1210, shared)
    (past,) = streams("purge", *to(1210, shared, "--before", "-1h", "--yes", "--json")).lines
    assert past["segments"] == 0
    (future,) = streams("purge", *to(1210, shared, "--before", "2200-01-01T00:00:00Z", "--yes", "--json")).lines
    assert future["new_start"] == 2 * SEGMENT
    with begin("send", *to(1211, shared, "--record", "--payload", "framed")) as sender:
        sender.stdin.write(thousand(150))
        sender.stdin.flush()
        wait_for_two_segments(1211, shared)
        (active,) = streams("purge", *to(1211, shared, "--before", "2200-01-01T00:00:00Z", "--yes", "--json")).lines
        assert active["segments"] >= 1
        sender.communicate(timeout=60)
    assert sender.returncode == 0


def test_raw_messages_cannot_be_purged_by_time(shared: Path) -> None:
    with begin("send", *to(1212, shared, "--record")) as sender:
        sender.stdin.write(thousand(150))
        sender.stdin.flush()
        wait_for_two_segments(1212, shared)
        done = streams("purge", *to(1212, shared, "--before", "2200-01-01T00:00:00Z", "--yes"))
        assert done.code == 1
        assert "its raw messages carry no publish times. Give a position" in done.err
        refused = streams("delete", *to(1212, shared, "--yes"))
        assert refused.code == 1
        assert "of stream 1212 of aeron:ipc is still being recorded. Stop its publisher first" in refused.err
        sender.communicate(timeout=60)
    assert pipe(b"", "receive", *to(1212, shared)).out == thousand(150)


def test_all_or_some_stopped_recordings_are_deleted(shared: Path) -> None:
    send(b"first\n", 1213, shared)
    send(b"second\n", 1213, shared)
    first, second = (one["id"] for one in stopped(1213, shared)["details"])
    wrong = streams("delete", *to(1213, shared, "--recording", "4711", "--yes"))
    assert wrong.code == 1
    assert f"stream 1213 of aeron:ipc has no recording 4711. Choose from {first}, {second}." in wrong.err
    refused = streams("delete", *to(1213, shared))
    assert refused.code == 2
    assert "confirmation is needed" in refused.err
    deleted = streams("delete", *to(1213, shared, "--recording", str(first), "--yes", "--json"))
    assert deleted.lines == [{"recording": first, "bytes": 64, "deleted": True}]
    assert pipe(b"", "receive", *to(1213, shared)).out == b"second\n"
    assert streams("delete", *to(1213, shared, "--yes")).out == b"deleted 1 recording of stream 1213 of aeron:ipc\n"
    assert streams("describe", *to(1213, shared)).code == 1


def test_json_output_has_one_object_per_line(shared: Path) -> None:
    send(b"x\n", 1214, shared)
    for line in streams("list", "--aeron-dir", str(shared), "--json").out.splitlines():
        assert isinstance(json.loads(line), dict)
