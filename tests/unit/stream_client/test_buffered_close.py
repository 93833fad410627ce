"""The folder of a buffered writer is free when ``close`` returns, also while the server does not respond."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import RefusedError, UsageError
from aeron_spark.node.locks import FileLock
from aeron_spark.stream_client import buffered_writer
from aeron_spark.stream_client.buffered_writer import BufferedWriter
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.stream_requests import CommitTransaction
from tests.unit.stream_client.joined import World
from tests.unit.stream_client.test_buffered_outcomes import ROOT, TIMEOUT_S, offline_writer, online_writer
from tests.unit.stream_client.test_threads_share import values


class SilentServer:
    """Keeps the requests of a writer, and passes them on, from the class ``first`` on, when ``respond`` is called."""

    def __init__(self, out: BufferedWriter, first: type, patched: pytest.MonkeyPatch) -> None:
        self.has_request = threading.Event()
        self._responds = threading.Event()
        call = out._session.call

        def wait_and_call(request: Any, **named: Any) -> Any:
            if isinstance(request, first):
                self.has_request.set()
                assert self._responds.wait(TIMEOUT_S)
            return call(request, **named)

        patched.setattr(out._session, "call", wait_and_call)

    def respond(self, out: BufferedWriter) -> None:
        self._responds.set()
        out._sender.join(TIMEOUT_S)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered_writer, "CLOSE_TIMEOUT_S", 0.01)
    monkeypatch.setattr(buffered_writer, "SENDER_END_TIMEOUT_S", 0.01)


def closed_during_request(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, request_class: type
) -> tuple[BufferedWriter, SilentServer]:
    """Return a writer that was closed while its request had no response, and the server that did not respond."""
    out = online_writer(world, folder)
    server = SilentServer(out, request_class, monkeypatch)
    out.write(b"1")
    out.commit()
    assert server.has_request.wait(TIMEOUT_S)
    out.close()
    return out, server


@pytest.mark.parametrize("request_class", [object, CommitTransaction])
def test_a_folder_is_free_after_a_close_although_the_server_does_not_respond(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_class: type
) -> None:
    """Regression: the folder's lock stayed for 49 s; the second writer was refused, "another process writes"."""
    out, server = closed_during_request(world, tmp_path / "b", monkeypatch, request_class)
    assert out._sender.is_alive()
    again = online_writer(world, tmp_path / "b")
    assert again.unsent == 1
    again.write(b"2")
    again.commit()
    server.respond(out)  # the late response changes nothing in the folder, which has another writer
    again.flush(TIMEOUT_S)
    again.close()
    assert values(world) == [b"1", b"2"]
    assert again.trouble is None


@pytest.mark.parametrize("request_class", [object, CommitTransaction])
@pytest.mark.parametrize("is_sent", [True, False])
def test_a_late_request_of_a_closed_writer_does_not_end_the_writer_of_another_process(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_class: type, is_sent: bool
) -> None:
    """Regression: that process does not wait for the thread of this one, and was fenced by its late begin."""
    out, server = closed_during_request(world, tmp_path / "b", monkeypatch, request_class)
    monkeypatch.setattr(buffered_writer, "_senders", {})
    again = online_writer(world, tmp_path / "b")
    again.write(b"2")
    again.commit()
    if is_sent:
        again.flush(TIMEOUT_S)
    server.respond(out)
    again.write(b"3")
    again.commit()
    again.flush(TIMEOUT_S)
    assert again.trouble is None
    again.close()
    assert values(world) == [b"1", b"2", b"3"]


def test_a_later_program_still_takes_the_writer_id_over(world: World, tmp_path: Path) -> None:
    """No request of a former writer of the folder can be late."""
    online_writer(world, tmp_path / "b").close()
    out = online_writer(world, tmp_path / "b")
    out.write(b"1")
    out.commit()
    out.flush(TIMEOUT_S)
    later = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw")
    later.write(b"2")
    later.commit()
    out.write(b"3")
    out.commit()
    with pytest.raises(RefusedError, match="cannot be sent"):
        out.flush(TIMEOUT_S)
    out.close()
    later.close()


def test_a_second_writer_of_this_process_is_refused_as_such(tmp_path: Path) -> None:
    out = offline_writer(tmp_path / "b")
    with pytest.raises(UsageError, match="this process has another writer that uses the buffer"):
        offline_writer(tmp_path / "b")
    out.close()
    offline_writer(tmp_path / "b").close()


def test_a_writer_of_another_process_is_named_by_its_id(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from aeron_spark.node.locks import FileLock\n"
        "FileLock(Path(sys.argv[1])).try_own(); print('locked', flush=True); sys.stdin.read()"
    )
    (tmp_path / "b").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "b" / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT / "connector")},
    ) as other:  # fmt: skip
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match=f"process {other.pid} writes through the buffer"):
            offline_writer(tmp_path / "b")
        other.communicate()


def test_a_folder_without_the_id_of_its_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier releases wrote no id into the lock's file."""
    monkeypatch.setattr("aeron_spark.stream_client.buffer_folder.current_owner_pid", lambda _: None)
    (tmp_path / "b").mkdir()
    with FileLock(tmp_path / "b" / "lock") as lock:
        assert lock.try_acquire()
        assert os.path.getsize(lock.path) == 0
        with pytest.raises(UsageError, match="another process writes through the buffer"):
            offline_writer(tmp_path / "b")
