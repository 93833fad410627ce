"""Files and long messages over real drivers, and streams of a client that does not send what it announced."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.connection.spill import ReceivedFile
from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.message_types import BuiltIn
from aeron_spark.protocol.transfers import MAX_TRANSFERS, MEMORY_LIMIT, Purpose, TransferStart
from aeron_spark.server.server import TransportServer
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure import byhand
from tests.aeron.secure.byhand import by_hand
from tests.aeron.secure.ends import PATIENCE, Heard, World, nothing_held

KIB: Final = 1024
MIB: Final = 1024 * KIB
CONTENT: Final = 1  # the stream id of what is sent by hand


class Kept:
    """A server that keeps the digests of what it is sent, by name or by tag, and a folder for what it spills."""

    def __init__(self, world: World, folder: Path, place: ServerAddress, **link: object) -> None:
        self.folder = folder
        self.place = place
        self.server: TransportServer = world.server(
            place,
            echo=False,
            link=replace(LinkSettings(spill_folder=folder), **link),  # type: ignore[arg-type]
        )
        self.heard = Heard(self.server)
        self.files: dict[str, tuple[int, str]] = {}
        self.messages: list[tuple[int, bytes]] = []  # the connection's number, and what it said
        self.server.on_message(ReceivedFile, self._file)
        self.server.on_message(bytes, lambda connection, message: self.messages.append((connection.id, bytes(message))))

    def _file(self, _: Connection, file: ReceivedFile) -> None:
        self.files[file.name] = file.size, digest_of(file.path)

    @property
    def spilled(self) -> list[Path]:
        """The files there are now."""
        return list(self.folder.iterdir())


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


@pytest.fixture
def kept(world: World, tmp_path: Path) -> Iterator[Kept]:
    folder = tmp_path / "spilled"
    folder.mkdir()
    times = Times(expiry_seconds=0.2, linger_seconds=0.1, retention_seconds=0.5, min_retention_seconds=0.1)
    session = replace(LinkSettings().session, retention_seconds=0.5, buffer_seconds=0.5)
    yield Kept(world, folder, world.place(), times=times, session=session)
    assert not list(folder.iterdir())


@pytest.fixture
def client(world: World, kept: Kept) -> Client:
    return world.connected(kept.place)


SIZES: Final = [0, 1, 5, KIB, MEMORY_LIMIT, 17 * MIB]


def test_row_62_files_of_all_sizes_arrive_whole(kept: Kept, client: Client, tmp_path: Path, rng: random.Random) -> None:
    sent = {}
    for size in SIZES:
        path = tmp_path / f"file-{size}"
        path.write_bytes(rng.randbytes(size))
        sent[path.name] = size, digest_of(path)
        client.send_file(path)
    client.send(b"all were sent", acknowledge=True)
    assert kept.files == sent
    assert not kept.spilled  # they go when the listeners have returned
    assert not kept.heard.errors


@pytest.mark.soak
def test_row_62_a_file_of_more_than_two_gibibytes_arrives_whole(
    kept: Kept, client: Client, tmp_path: Path, rng: random.Random
) -> None:
    path, size = tmp_path / "large", 2**31 + 100 * MIB + 1
    with path.open("wb") as file:
        for position in range(0, size, 256 * MIB):  # between these it is zeros
            file.seek(position)
            file.write(rng.randbytes(MIB))
        file.truncate(size)
    client.send_file(path, timeout=60)
    client.send(b"it was sent", acknowledge=True, timeout=300)
    assert kept.files == {"large": (size, digest_of(path))}


@pytest.mark.parametrize(("total", "files"), [(MEMORY_LIMIT, 0), (MEMORY_LIMIT + 1, 1)], ids=["small", "large"])
def test_row_62_what_is_small_is_in_memory_while_it_comes_and_what_is_large_in_a_file(
    world: World, kept: Kept, total: int, files: int
) -> None:
    with by_hand(world.dialling, kept.place) as one:
        one.say(stream(CONTENT, total), byhand.data(CONTENT, 0, bytes(KIB)))
        wait_for(lambda: kept.server.statistics["streams"] == 1, PATIENCE, "the stream")
        held = 0 if files else KIB
        wait_for(lambda: kept.server.statistics["stream_bytes"] == held, PATIENCE, f"{held} bytes in memory")
        wait_for(lambda: [path.stat().st_size for path in kept.spilled] == [KIB] * files, PATIENCE, "the file")
        one.say(byhand.failed(CONTENT, "that was enough"))
        wait_for(lambda: not kept.server.statistics["streams"], PATIENCE, "the stream to end")
        wait_for(lambda: not kept.spilled, PATIENCE, "its file to go")  # in a listener's thread, after that


def stream(number: int, total: int) -> tuple[int, bytes]:
    return byhand.start(TransferStart(number, Purpose.MESSAGE, total, BuiltIn.BYTES))


WRONG: Final[dict[str, Callable[[], list[tuple[int, bytes]]]]] = {
    "it ended early": lambda: [
        stream(CONTENT, 100), byhand.data(CONTENT, 0, bytes(50)), byhand.finished(CONTENT, bytes(50))
    ],
    "expected at most 10 bytes at offset 0": lambda: [stream(CONTENT, 10), byhand.data(CONTENT, 1_000_000, b"12345")],
    "6 bytes at offset 5 of transfer": lambda: [
        stream(CONTENT, 10), byhand.data(CONTENT, 0, b"12345"), byhand.data(CONTENT, 5, b"678901")
    ],
    "its digest differs": lambda: [
        stream(CONTENT, 10), byhand.data(CONTENT, 0, b"1234567890"), byhand.finished(CONTENT, b"1234567891")
    ],
}  # fmt: skip


@pytest.mark.parametrize("spills", [False, True], ids=["in memory", "in a file"])
def test_row_63_a_stream_that_is_not_what_it_announced_is_refused_and_nothing_is_delivered(
    world: World, tmp_path: Path, spills: bool
) -> None:
    kept = Kept(world, tmp_path, world.place(), **({"transfer_memory_bytes": 0} if spills else {}))
    with by_hand(world.dialling, kept.place) as one:
        for count, (why, records) in enumerate(WRONG.items(), 1):
            one.say(*records())
            refused = one.refusal()
            assert (refused.transfer_id, refused.by_receiver) == (CONTENT, True)
            assert why in refused.text
            wait_for(lambda count=count: len(kept.heard.errors) == count, PATIENCE, "the error")  # type: ignore[misc]
            assert isinstance(kept.heard.errors[-1], DataFormatError)
            assert kept.server.statistics["streams"] == 0
            assert not kept.spilled
        one.say(stream(2, 3), byhand.data(2, 0, b"abc"), byhand.finished(2, b"abc"))
        wait_for(lambda: bool(kept.messages), PATIENCE, "the stream that is right")
        assert [message for _, message in kept.messages] == [b"abc"]


def test_row_64_a_sender_that_gives_up_leaves_nothing(world: World, tmp_path: Path) -> None:
    kept = Kept(world, tmp_path, world.place(), transfer_memory_bytes=10)
    with by_hand(world.dialling, kept.place) as one:
        one.say(stream(1, 10), byhand.data(1, 0, b"12345"), stream(2, 11), byhand.data(2, 0, b"12345"))
        wait_for(lambda: [path.stat().st_size for path in kept.spilled] == [5], PATIENCE, "the file")
        one.say(byhand.failed(1, "no more of the first"), byhand.failed(2, "no more of the second"))
        wait_for(lambda: len(kept.heard.errors) == 2, PATIENCE, "the errors")
        assert [isinstance(error, RefusedError) for error in kept.heard.errors] == [True, True]
        assert "no more of the first" in str(kept.heard.errors[0])
        assert (kept.server.statistics["streams"], kept.server.statistics["stream_bytes"]) == (0, 0)
        assert not kept.spilled
        assert not kept.messages


@pytest.mark.parametrize("silent", [False, True], ids=["who says so", "who is silent"])
def test_row_64_streams_have_a_limit_and_nothing_is_left_of_those_of_one_that_has_gone(
    world: World, kept: Kept, silent: bool
) -> None:
    """Every other one is for the disk."""
    with by_hand(world.dialling, kept.place, silent=silent) as one:
        for number in range(1, 201):
            one.say(stream(number, MEMORY_LIMIT + number % 2), byhand.data(number, 0, b"begun"))
        refused = [one.refusal().transfer_id for _ in range(200 - MAX_TRANSFERS)]
        assert refused == list(range(MAX_TRANSFERS + 1, 201))
        assert kept.server.statistics["streams"] == MAX_TRANSFERS
        assert kept.spilled
    nothing_held(kept.server)  # where it is silent, when the time of its session is over
    assert "streams" not in kept.server.statistics
    wait_for(lambda: not kept.spilled, PATIENCE, "the files to go")
    assert not kept.messages


@pytest.mark.parametrize("number", [1, -1, -(2**63), 2**63 - 1])
def test_row_65_streams_of_one_number_on_two_connections_do_not_mix(world: World, tmp_path: Path, number: int) -> None:
    kept = Kept(world, tmp_path, world.place(), transfer_memory_bytes=1000)
    with by_hand(world.dialling, kept.place) as one, by_hand(world.dialling, kept.place) as other:
        for size in (900, 9000):  # in memory, and in files
            contents = {one: b"1" * size, other: b"2" * size}
            for end, content in contents.items():
                end.say(stream(number, len(content)))
            for at in range(0, size, 300):
                for end, content in contents.items():
                    end.say(byhand.data(number, at, content[at : at + 300]))
            for end, content in contents.items():
                end.say(byhand.finished(number, content))
            wait_for(lambda: len(kept.messages) == 2, PATIENCE, "both")
            expected = {(end.connected.ack.session_in, content) for end, content in contents.items()}
            assert set(kept.messages) == expected
            kept.messages.clear()
    assert not kept.heard.errors
