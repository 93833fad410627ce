"""``send`` and ``receive`` on the direct route, with a media driver and an archive."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aeron_spark.cli import output
from aeron_spark.direct.writing import CONFIRM_INTERVAL_S
from tests.aeron.streams import own_node
from tests.cli.conftest import BytesResult, begin, pipe
from tests.programs import CONNECTOR
from tests.waiting import poll_until

TIMEOUT_S = 60.0  # for an operation of another process on a slow machine


def to(stream_id: int, aeron_dir: Path, *more: str, channel: str = "aeron:ipc") -> list[str]:
    return ["--channel", channel, "--stream-id", str(stream_id), "--aeron-dir", str(aeron_dir), *more]


def send(given: bytes, stream_id: int, aeron_dir: Path, *more: str, channel: str = "aeron:ipc") -> BytesResult:
    done = pipe(given, "send", *to(stream_id, aeron_dir, "--record", "--ack", "archive", *more, channel=channel))
    assert done.code == 0, done.err
    return done


def receive(stream_id: int, aeron_dir: Path, *more: str) -> BytesResult:
    done = pipe(b"", "receive", *to(stream_id, aeron_dir, *more))
    assert done.code == 0, done.err
    return done


def test_received_json_has_any_bytes_and_can_be_sent_again(shared: Path) -> None:
    text = b"plain\n" + bytes([0, 255, 254]) + b"\n\n"
    send(text, 1002, shared)
    received = receive(1002, shared, "--json")
    assert [one.get("value") for one in received.lines] == ["plain", None, ""]
    assert received.lines[1]["valueBase64"] == "AP/+"
    assert [one["position"] for one in received.lines] == [0, 64, 128]
    assert {one["streamId"] for one in received.lines} == {1002}
    send(received.out, 1003, shared, "--format", "json", "--payload", "raw")
    assert receive(1003, shared).out == text
    at = receive(1002, shared, "--start", "64", "--json")
    assert [one["position"] for one in at.lines] == [64, 128]


def test_a_stream_that_was_never_recorded_is_an_error_and_leaves_no_file(shared: Path, tmp_path: Path) -> None:
    """Regression: a mistaken stream looked like one without rows, and was recorded from then on."""
    for _ in range(2):
        done = pipe(b"", "receive", *to(1007, shared, "--output", str(tmp_path / "none.parquet")))
        assert done.code == 1, done.err
        assert "the archive embedded has no recording of stream 1007 of aeron:ipc" in done.err
    assert list(tmp_path.iterdir()) == []


def test_framed_values_larger_than_a_message_are_sent_in_chunks(shared: Path, rng: random.Random) -> None:
    large = rng.randbytes(100_000).replace(b"\n", b".")
    refused = pipe(b"small\n" + large, "send", *to(1008, shared, "--record"))
    assert refused.code == 1
    assert (
        "line 2 of standard input: a value has 100000 bytes, and the longest message of this channel has 8192"
        in refused.err
    )
    listed = pipe(b"", "recordings", "list", *to(1008, shared, "--json")).out.splitlines()
    assert not any(json.loads(one)["standing"] for one in listed), "a failed command has left its request to record"
    send(b"small\n" + large + b"\n", 1009, shared, "--payload", "framed")
    assert receive(1009, shared).out == b"small\n" + large + b"\n"
    assert receive(1009, shared, "--count", "1").out == b"small\n"


@pytest.mark.parametrize("record", [["--record"], ["--ack", "driver"]])
def test_an_unknown_host_in_the_channel_is_an_error_with_a_remedy(record: list[str], shared: Path) -> None:
    """Regression: the sentence had the internal alias of a recording's channel, and no remedy."""
    channel = "aeron:udp?endpoint=no-such.invalid:40123"
    done = pipe(b"one\n", "send", "--channel", channel, "--stream-id", "1900", "--aeron-dir", str(shared), *record)
    assert done.code == 1
    assert f"{channel} stream 1900 failed: the host name 'no-such.invalid' cannot be resolved to an address" in done.err
    assert "Correct 'channel'" in done.err


def test_follow_without_a_start_skips_earlier_messages(shared: Path) -> None:
    send(b"old\n", 1011, shared)
    with begin("receive", *to(1011, shared, "-f", "--option", "payload=raw", "-n", "1")) as follower:
        # Receive does not report that it is ready: messages are sent until one arrives.
        with begin("send", *to(1011, shared)) as sender:
            deadline = time.monotonic() + TIMEOUT_S
            while follower.poll() is None and time.monotonic() < deadline:
                sender.stdin.write(b"new\n")
                sender.stdin.flush()
                time.sleep(0.05)
            sender.communicate(timeout=TIMEOUT_S)
        out, err = follower.communicate(timeout=TIMEOUT_S)
    assert (follower.returncode, out, err) == (0, b"new\n", b"")


def test_sigint_ends_send_when_its_read_rows_are_recorded(shared: Path) -> None:
    with begin("send", *to(1015, shared, "--record", "--ack", "archive")) as sender:
        sender.stdin.write(b"one\ntwo\nhalf a li")
        sender.stdin.flush()
        deadline = time.monotonic() + TIMEOUT_S
        # until the sender has begun, the stream has no recording, which is an error
        while pipe(b"", "receive", *to(1015, shared)).out != b"one\ntwo\n":
            assert time.monotonic() < deadline
        sender.send_signal(signal.SIGINT)
        sender.wait(TIMEOUT_S)  # before its input is closed, which would make half a line a whole one
        out, err = sender.communicate(timeout=TIMEOUT_S)
    assert sender.returncode == 130, err
    assert out == b"sent 2 rows to stream 1015 of aeron:ipc\n"
    assert receive(1015, shared).out == b"one\ntwo\n"


def test_a_closed_pipe_ends_receive_without_an_error(shared: Path) -> None:
    send(b"".join(b"%d\n" % number for number in range(20_000)), 1016, shared)
    command = " ".join([sys.executable, "-m", "aeron_spark", "receive", *to(1016, shared)])
    done = subprocess.run(
        f"{command} | head -n 1",
        shell=True,
        executable="/bin/bash",
        env={"PYTHONPATH": str(CONNECTOR), "PATH": "/usr/bin:/bin", **_homes()},
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.stdout, done.stderr) == (b"0\n", b"")


def _homes() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("AERON_SPARK_", "XDG_"))}


def test_the_error_for_invalid_json_has_the_line_and_the_number_of_sent_rows(shared: Path) -> None:
    with begin("send", *to(1017, shared, "--record", "--format", "json")) as sender:
        sender.stdin.write(b'{"id": 1}\n{"id": 2}\n')
        sender.stdin.flush()
        deadline = time.monotonic() + TIMEOUT_S
        # before the first rows the stream has no recording, which is an error of `receive`
        while pipe(b"", "receive", *to(1017, shared)).lines != [{"id": 1}, {"id": 2}]:
            assert time.monotonic() < deadline
        out, err = sender.communicate(b'{"id": \n', timeout=TIMEOUT_S)
    assert (sender.returncode, out) == (1, b"")
    assert b"aeron-spark: 2 rows were sent before this error:" in err
    assert b"standard input is not JSON lines of one schema, after line 2: JSON parse error" in err
    assert receive(1017, shared).lines == [{"id": 1}, {"id": 2}]


def test_the_error_after_a_kill_of_the_node_has_the_numbers_of_confirmed_and_of_sent_rows(run_name: str) -> None:
    """Regression: it had the number of sent rows only, of which a quarter was not recorded."""
    with own_node(run_name) as killed:
        stream = to(1001, Path(killed.aeron_dir))
        with begin("send", *stream, "--record", "--ack", "archive", "--option", "offerTimeout=2s") as sender:
            sender.stdin.write(b"one\n")
            sender.stdin.flush()
            # before the first row the stream has no recording, which is an error of `receive`
            poll_until(lambda: pipe(b"", "receive", *stream).out == b"one\n", TIMEOUT_S, "the recorded row")
            time.sleep(CONFIRM_INTERVAL_S)  # after which the sender looks again at what is recorded
            os.kill(killed.pid, signal.SIGKILL)
            out, err = sender.communicate(b"two\nthree\n", timeout=TIMEOUT_S)
    assert (sender.returncode, out) == (1, b"")
    assert b"aeron-spark: 1 rows are confirmed, of 3 that were sent before this error:" in err


def test_a_missing_subscriber_is_an_error_after_connect_timeout(shared: Path) -> None:
    done = pipe(b"x\n", "send", *to(1018, shared, "--ack", "driver", "--option", "connectTimeout=300ms"))
    assert done.code == 1
    assert "waited 0.3 s for a subscriber on aeron:ipc stream 1018" in done.err
    assert "Start a subscriber" in done.err
    dropped = pipe(
        b"x\ny\n", "send", *to(1018, shared, "--ack", "driver", "--option", "whenUnconnected=drop", "--json")
    )
    assert (dropped.code, dropped.lines[0]["dropped"]) == (0, 2)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_progress_bar_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "PROGRESS_DELAY_S", 0.0)
    terminal, file = _Terminal(), io.StringIO()
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stderr", stream)
        with output.progress("sending", 1_000) as advance:
            advance(10, 400)
            advance(1234, 600)
    assert "sending" in terminal.getvalue()
    assert "1,244 rows" in terminal.getvalue()
    assert file.getvalue() == ""
