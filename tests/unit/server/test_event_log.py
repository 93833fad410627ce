"""Tests the events that a server makes of facts: of connections, over the memory transport, and of streams."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.endpoint.connection import CallEnded, ConnectionCore
from aeron_spark.endpoint.endpoint_listeners import Ending, ErrorReported
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.server_sessions import DRIVER_LOST, DriverBack
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    DataLossError,
    RefusedError,
    SetupError,
    TamperedError,
    TransportError,
)
from aeron_spark.facts import Bus
from aeron_spark.keys.clients_file import ClientTable, default_name
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.grants import Grant, KeyLimits
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.clients import ClientsWatcher
from aeron_spark.server.event_log import LOG, EventLog, EventReported, reason_of
from aeron_spark.streams.model import CommittedTransaction, RecordingStopped, StreamNotOpened, StreamRecovery
from aeron_spark.wire.stream_requests import (
    SERVICE,
    AlterStream,
    BeginTransaction,
    CommitTransaction,
    EndStream,
    OpenStage,
    ReleaseLease,
    ReleaseWriter,
    RenameStream,
    ReopenStream,
    Request,
    Transaction,
)
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, client_options, server_options, wait_for


class Seen:
    """The events of a server."""

    def __init__(self, facts: Bus) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        facts.on(EventReported, lambda event: self.events.append((event.name, dict(event.fields))))

    def wait(self, name: str) -> dict[str, Any]:
        wait_for(lambda: name in self.names, f"the event {name}, of {self.events}")
        return next(fields for event, fields in self.events if event == name)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


def started(world: World, **changes: Any) -> tuple[MessageServer, Seen]:
    server = world.server(server_options(**changes))
    return server, Seen(server.facts)


def test_a_client_that_connects_and_closes_makes_two_events(world: World) -> None:
    _, seen = started(world)
    store = MemoryPeerStore()
    client = world.client(client_options(tag="orders"), source="192.0.2.7:4000", store=store)
    connected = seen.wait("connected")
    name = default_name(store.identity().public)
    assert connected == {
        "id": connected["id"], "name": name, "tag": "orders", "address": "192.0.2.7", "port": 4000, "transport": "udp",
    }  # fmt: skip
    client.close()
    disconnected = seen.wait("disconnected")
    assert disconnected.pop("seconds") >= 0
    assert disconnected == {**connected, "reason": "closed-by-client"}


def test_a_refusal_names_reason_limit_client_and_address(world: World) -> None:
    _, seen = started(world, max_connections=1)
    world.client(client_options(), source="192.0.2.7:4000")
    store = MemoryPeerStore()
    other = world.client(client_options(tag="second"), source="192.0.2.8:4000", store=store, connect=False)
    with pytest.raises(RefusedError):
        other.connect(TIMEOUT_S)
    assert seen.wait("refused") == {
        "reason": "full", "limit": "maxConnections", "value": 1, "retry": "when-freed", "tag": "second",
        "name": default_name(store.identity().public), "address": "192.0.2.8", "error": "Server is full",
    }  # fmt: skip


def test_errors_become_events_by_their_kind(world: World) -> None:
    server, seen = started(world)
    world.client(client_options(tag="orders"), source="192.0.2.7:4000")
    wait_for(lambda: server.connections, "the connection")
    (connection,) = server.sessions

    def report(of: ConnectionCore | None, error: BaseException) -> None:
        server.facts.emit(ErrorReported(of, error))

    report(connection, TamperedError("a frame was altered"))
    assert seen.wait("tampered")["error"] == "a frame was altered"
    report(None, TransportError("the media driver was lost", remedy="Wait.", reason=DRIVER_LOST))
    assert seen.wait("driver_lost") == {"error": "the media driver was lost", "remedy": "Wait."}
    server.facts.emit(DriverBack())
    assert seen.wait("driver_back")["seconds"] >= 0
    report(None, SetupError("no guard", remedy="Load it."))
    assert seen.wait("error") == {"error_type": "SetupError", "error": "no guard", "remedy": "Load it."}
    seen.events.clear()
    report(connection, ZeroDivisionError("of a listener"))
    error = seen.wait("error")
    assert (error["error_type"], error["id"]) == ("ZeroDivisionError", connection.id_text)


@pytest.mark.threads
def test_a_new_version_of_the_clients_file_is_one_event_and_a_wrong_one_another(world: World, tmp_path: Path) -> None:
    server, seen = started(world)
    key = public_text(MemoryPeerStore().identity().public)
    path = tmp_path / "authorized_keys"

    def write(line: str) -> None:
        path.write_text(f"{line} {key}" if line else "")
        path.chmod(0o600)

    write("name=a streams=*:read,write")
    watcher = ClientsWatcher(ClientTable(path), server.endpoint.apply_grants, server.endpoint.report, server.events)
    watcher.start()
    try:
        write("name=a streams=prices:read,write")
        assert seen.wait("clients_changed") == {
            "added": (), "removed": (), "changed": ("a",), "narrowed": ("a",), "keys": 1,
        }  # fmt: skip
        write("name=a stream=prices:read")
        failed = seen.wait("reload_failed")
    finally:
        watcher.close()
    assert f"line 1 of {path} is wrong" in failed["error"]
    assert failed["remedy"]
    assert failed["files"] == ("clients",)
    assert seen.names == ["clients_changed", "reload_failed"]


def test_an_emptied_clients_file_is_a_warning(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Regression: all clients were disconnected, and the log had one line of the level info."""
    server, _ = started(world)
    keys = [public_text(MemoryPeerStore().identity().public) for _ in range(2)]
    path = tmp_path / "authorized_keys"
    path.write_text("\n".join(keys))
    path.chmod(0o600)
    watcher = ClientsWatcher(ClientTable(path), server.endpoint.apply_grants, server.endpoint.report, server.events)
    with caplog.at_level(logging.INFO, LOG.name):
        for text in (keys[0], ""):
            path.write_text(text)
            watcher.reload()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_reasons_of_disconnections_are_codes() -> None:
    assert reason_of(None) == "detached"
    assert [reason_of(ending) for ending in Ending] == [
        "closed-by-server", "closed-by-client", "not-resumed", "never-connected",
    ]  # fmt: skip
    assert reason_of(RefusedError("x", reason="kicked")) == "kicked"
    assert reason_of(RefusedError("x", reason="made up\n")) == "RefusedError"
    assert reason_of(TamperedError("x")) == "TamperedError"


def test_a_refusal_names_the_limit_that_applies_after_a_reload(world: World) -> None:
    live = LiveOptions(server_options())
    seen = Seen(world.server(live).facts)
    first = world.client()
    live.replace(server_options(max_connections=1))
    with pytest.raises(RefusedError):
        world.client(connect=False).connect(TIMEOUT_S)
    refused = seen.wait("refused")
    assert (refused["reason"], refused["limit"], refused["value"]) == ("full", "maxConnections", 1)
    assert first.connected


def test_a_refusal_for_too_many_sessions_names_their_limit_and_not_that_of_connections(world: World) -> None:
    _, seen = started(world, max_sessions=1)
    world.client()
    with pytest.raises(RefusedError, match=r"1 is the limit \(option maxSessions of the server\)"):
        world.client(connect=False).connect(TIMEOUT_S)
    refused = seen.wait("refused")
    assert (refused["reason"], refused["limit"], refused["value"]) == ("full", "maxSessions", 1)


@pytest.mark.parametrize(
    ("own", "limit", "origin"),
    [
        (1, "connections=", "connections= of your key in the server's clients file"),
        (None, "maxConnectionsPerKey", "option maxConnectionsPerKey of the server, or connections= of your key in its"),
    ],
)
def test_a_refusal_for_a_keys_limit_names_the_option_that_sets_it(
    world: World, own: int | None, limit: str, origin: str
) -> None:
    key = MemoryPeerStore()
    authorised = MemoryPeerStore(authorized={key.identity().public: Grant(limits=KeyLimits(connections=own))})
    settings = server_options(max_connections_per_key=1, allow_any_key=False)
    server = world.server(settings, store=authorised, clients_file=Path("/etc/clients"))
    seen = Seen(server.facts)
    world.client(store=key)
    with pytest.raises(RefusedError) as caught:
        world.client(store=key, connect=False).connect(TIMEOUT_S)
    assert f"1 is the limit ({origin}" in str(caught.value)
    refused = seen.wait("refused")
    assert (refused["reason"], refused["limit"], refused["value"]) == ("key-limit", limit, 1)
    assert refused.get("clients_file") == (None if own is None else "/etc/clients")


class Client:
    """The core of a connection, of which only the key counts here."""

    peer = PeerInfo(b"k" * 32)


def reported(request: Request[Any], error: AeronSparkError | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that a request makes; fields that are None are left out, as in the log."""
    found: list[tuple[str, dict[str, Any]]] = []
    facts = Bus()
    facts.on(EventReported, lambda event: found.append((event.name, dict(event.fields))))
    EventLog(facts, lambda key: "desk-7", log=logging.getLogger("tests.events"))
    client: Any = Client()
    facts.emit(CallEnded(client, "", SERVICE, "", request, 0.0, error))
    return found


@pytest.mark.parametrize(
    ("request_", "name", "fields"),
    [
        (AlterStream("s", retention_seconds=60.0), "stream_altered", {"retention_seconds": 60.0}),
        (AlterStream("s", schema_policy="additive"), "stream_altered", {"schema_policy": "additive"}),
        (RenameStream("s", "t"), "stream_renamed", {"new_name": "t"}),
        (EndStream("s"), "stream_ended", {}),
        (ReopenStream("s"), "stream_reopened", {}),
        (ReleaseWriter("s", "w"), "writer_released", {"writer": "w"}),
        (ReleaseLease("s", "r"), "lease_released", {"reader": "r"}),
    ],
)
def test_each_change_of_a_stream_makes_an_event(request_: Request[Any], name: str, fields: dict[str, Any]) -> None:
    assert reported(request_) == [(name, {"stream": "s", "name": "desk-7", **fields})]
    assert reported(request_, RefusedError("no")) == []


def test_a_change_that_is_only_tried_makes_no_event() -> None:
    assert reported(AlterStream("s", retention_seconds=60.0, dry_run=True)) == []


def test_columns_that_a_stream_does_not_take_make_an_event_at_the_stage_and_at_the_commit() -> None:
    refusal = RefusedError("the data adds the columns 'x'", reason="schema")
    expected = ("schema_refused", {"stream": "s", "name": "desk-7", "error": refusal.what})
    transaction = Transaction("w", "r", 0, producer="p")
    stage = OpenStage("s", transaction, 0, 0, "arrow", b"", 1, 1)
    assert reported(stage, refusal) == [expected]
    assert reported(stage, DataFormatError("the column 'x' is int64"))[0][0] == "schema_refused"
    assert reported(stage, RefusedError("fenced")) == []
    for failed in (stage, BeginTransaction("s", transaction)):  # a folder that is gone, for example
        ((name, fields),) = reported(failed, TransportError("the journal is gone"))
        assert (name, fields["reason"], fields["transaction"]) == ("commit_failed", "TransportError", 0)
    commit = CommitTransaction("s", transaction, (), 1, 1.0)
    assert [name for name, _ in reported(commit, refusal)] == ["commit_failed", "schema_refused"]
    assert [name for name, _ in reported(commit, RefusedError("fenced"))] == ["commit_failed"]
    (event, _) = reported(commit, RefusedError("transactions 4 to 5 were acknowledged", reason="diverged"))
    assert event[0] == "diverged"
    assert event[1]["error"] == "transactions 4 to 5 were acknowledged"


# Streams


@pytest.fixture
def facts() -> Bus:
    made = Bus()
    EventLog(made)
    return made


@pytest.fixture
def seen(facts: Bus) -> Seen:
    return Seen(facts)


def committed(seconds: float) -> CommittedTransaction:
    return CommittedTransaction("prices", "desk-7", 3, 10, 4096, 0.1, 0.2, seconds - 0.4, 0.1)


def test_a_recovery_names_what_was_cut_from_the_journal_and_each_partition(
    facts: Bus, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    facts.emit(StreamRecovery("prices", 4, 17, {3: (81_920, 65_536)}, None, 0.25))
    (event,) = seen.events
    assert event == (
        "recovered",
        {
            "stream": "prices", "partitions": 4, "seconds": 0.25, "cut_bytes": 17 + 16_384,
            "cut": ("the end of the journal", "partition 3: 65536 to 81920"),
        },
    )  # fmt: skip
    assert caplog.records[0].levelname == "WARNING"


def test_a_recovery_without_a_cut_is_information(facts: Bus, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    facts.emit(StreamRecovery("prices", 4, 0, {}, None, 0.25))
    assert seen.events[0][1]["cut_bytes"] == 0
    assert caplog.records[0].levelname == "INFO"


def test_a_stream_that_was_restored_and_not_changed_since_is_reported_with_the_time_of_its_backup(
    facts: Bus, seen: Seen
) -> None:
    facts.emit(StreamRecovery("prices", 4, 0, {}, None, 0.25, 1_800_000_000 * 10**9))
    assert seen.events[1] == ("restored", {"stream": "prices", "copied_at": "2027-01-15T08:00:00Z"})


def test_a_damaged_stream_is_named_with_its_remedy(facts: Bus, seen: Seen) -> None:
    damage = DataLossError("the journal of 'prices' is damaged", remedy="Restore it.")
    facts.emit(StreamNotOpened("prices", damage))
    facts.emit(StreamRecovery("trades", 1, 0, {}, damage, 0.1))
    assert [name for name, _ in seen.events] == ["stream_damaged", "recovered", "stream_damaged"]
    assert seen.events[0][1] == {"stream": "prices", "error": damage.what, "remedy": "Restore it."}
    assert seen.events[2][1]["stream"] == "trades"


def test_each_of_many_damaged_streams_has_a_line(facts: Bus, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    for number in range(200):
        facts.emit(StreamNotOpened(f"stream-{number}", DataLossError("damaged")))
    assert len(caplog.records) == 200


def test_a_stream_that_is_opened_again_later_is_not_called_damaged(facts: Bus, seen: Seen) -> None:
    facts.emit(StreamNotOpened("prices", TransportError("the archive did not respond", remedy="Wait.")))
    assert [name for name, _ in seen.events] == ["error"]


def test_a_slow_commit_is_reported_with_its_phases(facts: Bus, seen: Seen) -> None:
    facts.emit(committed(0.99))
    assert seen.events == []
    facts.emit(committed(1.5))
    name, fields = seen.events[0]
    assert name == "commit_slow"
    assert fields["seconds"] == pytest.approx(1.5)
    phases = [fields[phase] for phase in ("stage_s", "publish_s", "record_s", "journal_s")]
    assert sum(phases) == pytest.approx(fields["seconds"])


def test_a_stopped_recording_names_stream_partition_and_recording(facts: Bus, seen: Seen) -> None:
    facts.emit(RecordingStopped("prices", 3, 17, TransportError("recording 17 stopped")))
    assert seen.events == [
        ("recording_stopped", {"stream": "prices", "partition": 3, "recording": 17, "error": "recording 17 stopped"})
    ]
