"""Runs commands in this process, and writes down what each printed: their output is a contract.

On the direct route, an archive in memory has the recordings; through a server, the stream service and the store are the
real ones, joined to a client in memory, with a virtual clock. So the same output comes each time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest

from aeron_spark import log_factory
from aeron_spark.aeron import jvm
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.cli import output
from aeron_spark.cli.main import WRONG_COMMAND_LINE, main
from aeron_spark.client import client as opening
from aeron_spark.client.client import Client
from aeron_spark.direct import archive_recordings, catalog, writing
from aeron_spark.errors import AeronSparkError
from aeron_spark.log.api import StreamContent
from tests.unit.log.publications import Archives
from tests.unit.stream_client.joined import World
from tests.unit.stream_client.recorded import Kept, MemoryArchive

FOLDER = Path(__file__).parents[2] / "golden" / "cli"
SERVER = "feeds.example:20121"
SEGMENT = 65_536
HOUR_MS = 3_600_000
# Times by the real clock, and those by the virtual one, which counts requests; not those of texts and of the archive.
TIMES = re.compile(r"(?:1970|20(?!26-03-01|00-01-01)\d\d)-\d\d-\d\dT[0-9:.]+Z|(?<=until )[0-9:]+Z")
BEGUN_MS = 1_772_355_600_000  # 2026-03-01 09:00 UTC
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


class Transcript:
    """The commands that ran, each with its output, its errors and its exit code."""

    def __init__(self, patched: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.text = ""
        self._jvm_starts = 0
        patched.setattr(jvm, "start", self._count_start)
        self._patched = patched
        self._captured = captured

    def _count_start(self, *_: object) -> None:
        self._jvm_starts += 1

    def run(self, line: str, *arguments: str, on_terminal: bool = False, answer: str | None = None) -> None:
        """Run a command line; ``arguments`` are further ones, with spaces. ``answer`` is that of the user.

        A wrong command line is refused by one line with its remedy, before a JVM starts.
        """
        starts = self._jvm_starts

        def respond(_: object, prompt: str, err: bool) -> str:
            assert answer is not None, prompt
            click.echo(prompt, err=err)
            return answer

        with self._patched.context() as patched:
            patched.setenv("COLUMNS", "160")
            patched.setattr(output, "is_terminal", lambda: on_terminal)
            patched.setattr("sys.stdin.isatty", lambda: answer is not None, raising=False)
            patched.setattr("click.termui._readline_prompt", respond)
            code = main([*line.split(), *arguments])
        found = self._captured.readouterr()
        if code == WRONG_COMMAND_LINE:
            assert (found.out, self._jvm_starts) == ("", starts)
            assert found.err.count("\n") == 1 or found.err.startswith("Usage: ")
        shown = " ".join([line, *(repr(one) for one in arguments)])
        self.text += f"$ aeron-spark {shown}{' (terminal)' if on_terminal else ''}\n"
        self.text += "".join(f"{one}\n" for one in found.out.splitlines())
        self.text += "".join(f"! {one}\n" for one in found.err.splitlines())
        self.text += f"= {code}\n"
        self.text = TIMES.sub(lambda found: re.sub(r"\d", "0", found[0]), self.text)

    def check(self, name: str, folder: Path) -> None:
        """Compare all of it with the file ``name``. If it differs, ``folder`` gets a file to review and to copy."""
        text = self.text.replace(f"{folder}/", "(folder)/")
        (folder / name).write_text(text)
        assert text == (FOLDER / name).read_text(), f"reviewed output belongs to tests/golden/cli: {folder / name}"


class StoreClient(Client):
    """A client of the server of a world."""

    def __init__(self, world: World) -> None:
        self._streams = world.stream_session()
        self._streams_lock = threading.Lock()
        self._world = world

    def close(self) -> None:
        """Do nothing: the world ends its connection."""

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Do nothing: no other client receives messages."""

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Do nothing: no other client receives messages."""


class StoredRows:
    """Reads the rows that a stream of a world has. Bulk links of a world carry only rows of writers."""

    def __init__(self, world: World, name: str, payload: str, schema: pa.Schema) -> None:
        assert world.server is not None
        states = world.server.store.get(name).states()
        self.payload = payload
        self.schema = schema
        self._values = [
            value for state in states for begin, end, value in world.archive.kept[state.shape.recording_id].messages
            if end <= state.end
        ]  # fmt: skip

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._values:
            yield pa.record_batch({"value": pa.array(self._values, pa.binary())})

    def stop(self) -> None:
        """Do nothing: the rows end at once."""


class ReadingClient(StoreClient):
    """A client that reads raw values from the store itself, and writes down how it was asked to."""

    asked: list[dict[str, Any]]

    def reader(self, stream: str, **wanted: Any) -> Any:
        self.stream(stream)
        self.asked.append(wanted)
        return StoredRows(self._world, stream, "raw", pa.schema([("value", pa.binary())]))


@pytest.fixture
def transcript(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Transcript:
    """A transcript of commands whose user has no files yet."""
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"AERON_SPARK_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", "/dev/shm/aeron-desk")
    monkeypatch.chdir(tmp_path)
    return Transcript(monkeypatch, capsys)


def serve(world: World, patched: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let commands with --server reach the server of a world. Return a list of what readers are asked for."""
    asked: list[dict[str, Any]] = []

    @contextmanager
    def connect(address: str, **options: Any) -> Iterator[Client]:
        assert address == SERVER
        client = ReadingClient(world)
        client.asked = asked
        yield client

    patched.setattr(opening, "connect", connect)
    return asked


def catalogue(patched: pytest.MonkeyPatch) -> MemoryArchive:
    """Let commands of the direct route reach an archive with three streams. Return it."""
    archive = MemoryArchive()
    handle = SimpleNamespace(
        aeron_dir="/dev/shm/aeron-desk", control_channel="aeron:ipc", control_stream=10, archive_dir="", archive_id=1
    )
    _record(archive, 1, 1001, "aeron:ipc", length=300_000)
    _record(archive, 2, 1001, "aeron:ipc", length=100, begun_ms=BEGUN_MS + HOUR_MS, is_active=True)
    _record(archive, 5, 1002, "aeron:ipc?alias=prices", length=5 * SEGMENT)
    _record(archive, 7, 40, "aeron:udp?endpoint=224.20.30.39:40123", length=0)
    patched.setattr(archive_recordings, "hold_node", lambda *_: handle)
    patched.setattr(catalog, "archive_of", lambda _: archive)
    patched.setattr(catalog, "ArchiveLog", lambda *_, **__: Archives())
    patched.setattr(catalog, "content_of", lambda *_: StreamContent("raw"))
    patched.setattr(catalog, "repeated_bytes", lambda *_: 0)
    return archive


def _record(
    archive: MemoryArchive, number: int, stream_id: int, channel: str, *, length: int, begun_ms: int = BEGUN_MS,
    is_active: bool = False,
) -> None:  # fmt: skip
    end = SEGMENT + length
    described = Recording(
        id=number, start_timestamp=begun_ms, stop_timestamp=None if is_active else begun_ms + HOUR_MS,
        start_position=SEGMENT, stop_position=None if is_active else end, initial_term_id=0, segment_length=SEGMENT,
        term_length=SEGMENT, mtu=1408, session_id=-number, stream_id=stream_id, channel=channel,
        original_channel=channel, source="aeron:ipc",
    )  # fmt: skip
    archive.kept[number] = Kept(described, [(SEGMENT, end, b"")] if length else [])


class Published:
    """The publisher of ``send`` on the direct route: it takes values, and fails as it is told."""

    max_message_bytes = 8192

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.dropped = 0
        self.error: AeronSparkError | None = None

    def publish_values(self, values: pa.Array[Any], reserved: object) -> None:
        if self.error is not None:
            raise self.error
        self.values += values.to_pylist()

    def publish_group(self, split: object, reserved: object) -> None:
        self.values.append(b"a group")

    def mark(self) -> int:
        return len(self.values)

    def has_recorded(self, mark: int) -> bool:
        return mark <= 2

    def wait_acknowledged(self) -> None:
        """Do nothing: values are recorded at once."""


def publish(patched: pytest.MonkeyPatch) -> Published:
    """Let ``send`` on the direct route publish to memory."""
    published = Published()
    patched.setattr(
        writing, "archives_of", lambda _: SimpleNamespace(aeron_dir="", archives=(ArchiveAddress("a", "", ""),))
    )
    patched.setattr(writing, "acknowledging_archive", lambda *_, **__: None)
    patched.setattr(writing, "Publisher", lambda *_: published)
    return published


def record(patched: pytest.MonkeyPatch, *texts: str) -> None:
    """Let ``receive`` on the direct route read these messages."""
    log = Archives()
    publication = log.publication()
    log.record(publication)
    for text in texts:
        publication.publish(text)
    patched.setattr(log_factory, "open_log", lambda *_, **__: log)
