"""Files and long messages over real drivers, and transfers that differ from their announcement."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.spill import ReceivedFile
from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.message_types import BuiltIn
from aeron_spark.protocol.transfers import MAX_TRANSFERS, MEMORY_LIMIT, Purpose, TransferStart
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, RecordedEvents, World, await_nothing_in_use
from tests.aeron.secure.scripted_client import data, failed, finished, scripted, start
from tests.message_server import MessageServer

KIB: Final = 1024
MIB: Final = 1024 * KIB
TRANSFER_ID: Final = 1  # of transfers of the scripted client


class Receiver:
    """A server that records received files and messages, with its folder of spill files."""

    def __init__(self, world: World, folder: Path, address: ServerAddress, **changes: object) -> None:
        self.folder = folder
        self.address = address
        self.server: MessageServer = world.server(address, echo=False, spill_dir=str(folder), **changes)
        self.recorded = RecordedEvents(self.server)
        self.files: dict[str, tuple[int, str]] = {}
        self.messages: list[tuple[int, bytes]] = []  # connection id, message
        self.server.on_message(ReceivedFile, self._file)
        self.server.on_message(bytes, lambda connection, message: self.messages.append((connection.id, bytes(message))))

    def _file(self, _: Connection, file: ReceivedFile) -> None:
        self.files[file.name] = file.size, digest_of(file.path)

    @property
    def spilled(self) -> list[Path]:
        """The spill files that exist now."""
        return list(self.folder.iterdir())


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while content := file.read(MIB):
            digest.update(content)
    return digest.hexdigest()


@pytest.fixture
def receiver(world: World, tmp_path: Path) -> Iterator[Receiver]:
    folder = tmp_path / "spilled"
    folder.mkdir()
    times = Times(expiry_seconds=0.2, linger_seconds=0.1, retention_seconds=0.5, min_retention_seconds=0.1)
    session = replace(ServerOptions().session_limits, retention_seconds=0.5, buffer_seconds=0.5)
    yield Receiver(world, folder, world.free_address(), times=times, session_limits=session)
    assert not list(folder.iterdir())


@pytest.fixture
def client(world: World, receiver: Receiver) -> Client:
    return world.connected(receiver.address)


SIZES: Final = [0, 1, 5, KIB, MEMORY_LIMIT, 17 * MIB]


def test_row_62_files_of_all_sizes_arrive_whole(
    receiver: Receiver, client: Client, tmp_path: Path, rng: random.Random
) -> None:
    sent = {}
    for size in SIZES:
        path = tmp_path / f"file-{size}"
        path.write_bytes(rng.randbytes(size))
        sent[path.name] = size, digest_of(path)
        client.send_file(path)
    client.send(b"all were sent", acknowledge=True)
    assert receiver.files == sent
    assert not receiver.spilled  # removed after the listeners have returned
    assert not receiver.recorded.errors


@pytest.mark.soak
def test_row_62_a_file_of_more_than_two_gibibytes_arrives_whole(
    receiver: Receiver, client: Client, tmp_path: Path, rng: random.Random
) -> None:
    path, size = tmp_path / "large", 2**31 + 100 * MIB + 1
    with path.open("wb") as file:
        for position in range(0, size, 256 * MIB):  # zeros between them
            file.seek(position)
            file.write(rng.randbytes(MIB))
        file.truncate(size)
    client.send_file(path, timeout=60)
    client.send(b"it was sent", acknowledge=True, timeout=300)
    assert receiver.files == {"large": (size, digest_of(path))}


@pytest.mark.parametrize(("total", "files"), [(MEMORY_LIMIT, 0), (MEMORY_LIMIT + 1, 1)], ids=["small", "large"])
def test_row_62_a_small_transfer_arrives_in_memory_and_a_large_one_in_a_file(
    world: World, receiver: Receiver, total: int, files: int
) -> None:
    with scripted(world.dialling, receiver.address) as one:
        one.send_records(stream(TRANSFER_ID, total), data(TRANSFER_ID, 0, bytes(KIB)))
        wait_for(lambda: receiver.server.statistics["streams"] == 1, TIMEOUT_S, "the transfer")
        memory_bytes = 0 if files else KIB
        wait_for(
            lambda: receiver.server.statistics["stream_bytes"] == memory_bytes,
            TIMEOUT_S,
            f"{memory_bytes} bytes in memory",
        )
        wait_for(lambda: [path.stat().st_size for path in receiver.spilled] == [KIB] * files, TIMEOUT_S, "the file")
        one.send_records(failed(TRANSFER_ID, "aborted"))
        wait_for(lambda: not receiver.server.statistics["streams"], TIMEOUT_S, "the transfer to end")
        wait_for(lambda: not receiver.spilled, TIMEOUT_S, "its file to be removed")  # in a listener thread


def stream(number: int, total: int) -> tuple[int, bytes]:
    return start(TransferStart(number, Purpose.MESSAGE, total, BuiltIn.BYTES))


WRONG: Final[dict[str, Callable[[], list[tuple[int, bytes]]]]] = {
    "it ended early": lambda: [
        stream(TRANSFER_ID, 100), data(TRANSFER_ID, 0, bytes(50)), finished(TRANSFER_ID, bytes(50))
    ],
    "expected at most 10 bytes at offset 0": lambda: [stream(TRANSFER_ID, 10), data(TRANSFER_ID, 1_000_000, b"12345")],
    "6 bytes at offset 5 of transfer": lambda: [
        stream(TRANSFER_ID, 10), data(TRANSFER_ID, 0, b"12345"), data(TRANSFER_ID, 5, b"678901")
    ],
    "its digest differs": lambda: [
        stream(TRANSFER_ID, 10), data(TRANSFER_ID, 0, b"1234567890"), finished(TRANSFER_ID, b"1234567891")
    ],
}  # fmt: skip


@pytest.mark.parametrize("spills", [False, True], ids=["in memory", "in a file"])
def test_row_63_a_transfer_that_differs_from_its_announcement_is_refused_and_not_delivered(
    world: World, tmp_path: Path, spills: bool
) -> None:
    receiver = Receiver(world, tmp_path, world.free_address(), **({"transfer_memory": 0} if spills else {}))
    with scripted(world.dialling, receiver.address) as one:
        for count, (why, records) in enumerate(WRONG.items(), 1):
            one.send_records(*records())
            refused = one.refusal()
            assert (refused.transfer_id, refused.by_receiver) == (TRANSFER_ID, True)
            assert why in refused.text
            wait_for(lambda count=count: len(receiver.recorded.errors) == count, TIMEOUT_S, "the error")
            assert isinstance(receiver.recorded.errors[-1], DataFormatError)
            assert receiver.server.statistics["streams"] == 0
            assert not receiver.spilled
        one.send_records(stream(2, 3), data(2, 0, b"abc"), finished(2, b"abc"))
        wait_for(lambda: bool(receiver.messages), TIMEOUT_S, "the valid transfer")
        assert [message for _, message in receiver.messages] == [b"abc"]


def test_row_64_an_aborted_transfer_leaks_nothing(world: World, tmp_path: Path) -> None:
    receiver = Receiver(world, tmp_path, world.free_address(), transfer_memory=10)
    with scripted(world.dialling, receiver.address) as one:
        one.send_records(stream(1, 10), data(1, 0, b"12345"), stream(2, 11), data(2, 0, b"12345"))
        wait_for(lambda: [path.stat().st_size for path in receiver.spilled] == [5], TIMEOUT_S, "the file")
        one.send_records(failed(1, "the first was aborted"), failed(2, "the second was aborted"))
        wait_for(lambda: len(receiver.recorded.errors) == 2, TIMEOUT_S, "the errors")
        assert [isinstance(error, RefusedError) for error in receiver.recorded.errors] == [True, True]
        assert "the first was aborted" in str(receiver.recorded.errors[0])
        assert (receiver.server.statistics["streams"], receiver.server.statistics["stream_bytes"]) == (0, 0)
        assert not receiver.spilled
        assert not receiver.messages


@pytest.mark.parametrize("silent", [False, True], ids=["with CLOSE", "without CLOSE"])
def test_row_64_the_number_of_transfers_is_limited_and_a_closed_client_leaks_none(
    world: World, receiver: Receiver, silent: bool
) -> None:
    """Every second transfer goes to a file."""
    with scripted(world.dialling, receiver.address, silent=silent) as one:
        for number in range(1, 201):
            one.send_records(stream(number, MEMORY_LIMIT + number % 2), data(number, 0, b"begun"))
        refused = [one.refusal().transfer_id for _ in range(200 - MAX_TRANSFERS)]
        assert refused == list(range(MAX_TRANSFERS + 1, 201))
        assert receiver.server.statistics["streams"] == MAX_TRANSFERS
        assert receiver.spilled
    await_nothing_in_use(receiver.server)  # without CLOSE, after the session timeout
    # the server counts the session as ended before the connection has ended
    wait_for(lambda: "streams" not in receiver.server.statistics, TIMEOUT_S, "the connection to end")
    wait_for(lambda: not receiver.spilled, TIMEOUT_S, "the files to be removed")
    assert not receiver.messages


@pytest.mark.parametrize("number", [1, -1, -(2**63), 2**63 - 1])
def test_row_65_transfers_with_the_same_number_on_two_connections_do_not_mix(
    world: World, tmp_path: Path, number: int
) -> None:
    receiver = Receiver(world, tmp_path, world.free_address(), transfer_memory=1000)
    with scripted(world.dialling, receiver.address) as one, scripted(world.dialling, receiver.address) as other:
        for size in (900, 9000):  # in memory, and in files
            contents = {one: b"1" * size, other: b"2" * size}
            for end, content in contents.items():
                end.send_records(stream(number, len(content)))
            for at in range(0, size, 300):
                for end, content in contents.items():
                    end.send_records(data(number, at, content[at : at + 300]))
            for end, content in contents.items():
                end.send_records(finished(number, content))
            wait_for(lambda: len(receiver.messages) == 2, TIMEOUT_S, "both")
            expected = {(end.connected.ack.session_in, content) for end, content in contents.items()}
            assert set(receiver.messages) == expected
            receiver.messages.clear()
    assert not receiver.recorded.errors
