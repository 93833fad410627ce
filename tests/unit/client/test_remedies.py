"""Errors name the wrong option, the unknown host, and the call in the peer's log."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.aeron.java_calls import plain_message
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.endpoint_listeners import EndpointListeners
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    OptionError,
    RefusedError,
    RemoteError,
    Retry,
    ServerKeyChanged,
)
from aeron_spark.facts import Bus
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.protocol.rpc_dispatch import REMEDIES
from aeron_spark.server.event_log import EventReported
from aeron_spark.server.stream_operations import OperationService
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire import stream_requests
from tests.unit.endpoint.endpoints import ADDRESS, World, client_options, wait_for

LOG = "aeron_spark.server"


class Things:
    """An object of the server's program."""

    def fail(self, text: str) -> None:
        raise ValueError(text)

    def refuse(self) -> None:
        raise OptionError("the window has 0 rows", remedy="Give 1 at least.", reason="window")

    def odd(self) -> object:
        return object()

    def take(self, number: int) -> int:
        return number


def test_a_mismatch_of_a_pinned_key_names_the_option_and_not_keys_forget(world: World) -> None:
    server = world.server()
    client = world.client(client_options(server_key=b"1" * 32), connect=False)
    with pytest.raises(ServerKeyChanged) as caught:
        client.connect(5.0)
    error = caught.value
    for named in ("'serverKey'", fingerprint(b"1" * 32), fingerprint(server.public_key)):
        assert named in error.what
    for named in ("serverKey", "server_key", "--server-key"):
        assert named in error.remedy
    assert "forget" not in str(error)


def test_a_mismatch_of_a_remembered_key_names_keys_forget(world: World) -> None:
    world.server()
    client = world.client(connect=False)
    client._endpoint.store.trust(client._endpoint.server, b"1" * 32)
    with pytest.raises(ServerKeyChanged, match="keys forget"):
        client.connect(5.0)


def test_a_link_that_the_server_cannot_open_is_a_server_error_and_not_one_of_ids(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = world.server()

    def broken(*arguments: object) -> object:
        raise OSError("no file is left")

    monkeypatch.setattr(server.endpoint.transport, "open_link", broken)
    client = world.client(connect=False)
    client.begin_connecting()
    wait_for(lambda: client.error is not None, "the server's response")
    error = client.error
    assert isinstance(error, RefusedError)
    assert (error.reason, error.retry) == ("server-error", Retry.SOON)
    assert "The link could not be opened" in error.what
    assert "ids" not in error.remedy
    wait_for(lambda: bool(world.recorded[server].errors_of(OSError)), "the server to report the cause")
    client.close()


@pytest.mark.parametrize(
    ("message", "host"),
    [
        (
            "ERROR - java.net.UnknownHostException: unresolved - control=no-such.invalid:20122, name-resolver="
            "io.aeron.driver.TimeTrackingNameResolver, errorCodeValue=1",
            "no-such.invalid",
        ),
        ("ERROR - io.aeron.X: y java.net.UnknownHostException: unresolved - endpoint=a.b:1, name-resolver=z", "a.b"),
    ],
)
def test_an_unknown_host_is_one_sentence_with_the_host(message: str, host: str) -> None:
    assert plain_message(message) == f"the host name '{host}' cannot be resolved to an address"


def test_other_messages_of_aeron_lose_only_their_category() -> None:
    assert plain_message("ERROR - channel is in use, endpoint=a:1") == "channel is in use, endpoint=a:1"
    assert plain_message("FATAL - odd") == "odd"


def test_a_path_that_cannot_be_opened_has_a_remedy(world: World) -> None:
    world.server()
    client = world.client(connect=False)
    world.network.refusal = "the host name 'no-such.invalid' cannot be resolved to an address"
    with pytest.raises(ConnectError, match=r"'no-such.invalid' cannot be resolved") as caught:
        client.connect(0.3)
    assert "host" in caught.value.remedy
    world.network.refusal = ""


def test_a_failed_call_has_the_same_name_in_its_error_and_in_the_peers_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = world.pair()
    server.register("things", Things(), ["fail", "take"])
    seen = set()
    for call in (lambda: client.remote("things").fail("lost"), lambda: client.remote("things").take()):
        caplog.clear()
        with pytest.raises(RemoteError) as caught:
            call()
        found = re.fullmatch(r"See call ([0-9a-f]{8}-[0-9]+) in the peer's log\.", caught.value.remedy)
        assert found is not None, caught.value.remedy
        (record,) = [one for one in caplog.records if one.name == LOG and one.levelno == logging.WARNING]
        text = record.getMessage()
        assert text.startswith(f"call_failed call={found[1]} ")
        assert ' method="the call of ' in text
        assert " stack=" in text
        assert text.isprintable()
        seen.add(found[1])
    assert len(seen) == 2
    assert {int(one.partition("-")[0], 16) for one in seen} == {client.connection.id & 0xFFFFFFFF}


class WithoutGrant(OperationService):
    """The requests of a key without a grant."""

    _grant = Grant()  # type: ignore[assignment]


class RefusingStreams:
    """The stream service for keys without a grant."""

    def serve(self, connection: ConnectionCore) -> None:
        service: Any = SimpleNamespace(
            store=lambda: SimpleNamespace(names=()), facts=Bus(),
            check_write=lambda: None, loop=None,
        )  # fmt: skip
        connection.add_service(WithoutGrant(service, connection), stream_requests.SERVICE)


def test_the_error_of_a_stream_request_has_the_name_of_its_call_in_the_servers_log(world: World) -> None:
    server = world.server(start=False)
    server.endpoint.add_service(RefusingStreams().serve)
    server.start([ADDRESS])
    failed: list[str] = []
    server.facts.on(
        EventReported, lambda event: failed.append(event.fields["call"]) if event.name == "call_failed" else None
    )
    session = StreamSession(world.client(), 20.0)
    for _ in range(2):
        with pytest.raises(AeronSparkError) as caught:
            session.call(stream_requests.DeleteStream("prices"))
        assert caught.value.call == failed[-1]
        assert str(caught.value).endswith(f" (call {failed[-1]} in the peer's log)")
        assert failed[-1] not in caught.value.what
    assert len(set(failed)) == 2


def test_the_client_logs_calls_of_its_objects_that_fail(world: World, caplog: pytest.LogCaptureFixture) -> None:
    server, client = world.pair()
    client.register("things", Things(), ["fail"])
    (connection,) = server.connections
    with pytest.raises(RemoteError) as caught:
        connection.remote("things").fail("lost")
    name = caught.value.remedy.split()[2]
    assert f"call {name} of " in caplog.text


def test_a_text_from_a_caller_cannot_forge_log_lines(world: World, caplog: pytest.LogCaptureFixture) -> None:
    server, client = world.pair()
    server.register("things", Things(), ["fail"])
    with pytest.raises(RemoteError):
        client.remote("things").fail("x\nWARNING forged\r\x1b[2J\u202e")
    (record,) = [one for one in caplog.records if one.name == LOG]
    assert record.getMessage().isprintable()


def test_a_text_from_a_peer_in_an_error_without_a_listener_cannot_forge_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    EndpointListeners(Bus()).report(None, RefusedError("the peer aborted a transfer: x\nWARNING forged\r\x1b[2J\u202e"))
    (record,) = [one for one in caplog.records if one.name == "aeron_spark.endpoint"]
    assert record.getMessage().isprintable()
    assert r"x\u000aWARNING forged\u000d\u001b[2J\u202e" in record.getMessage()


def test_an_error_of_this_package_keeps_its_remedy_and_is_logged_in_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    server, client = world.pair()
    server.register("things", Things(), ["refuse"])
    with pytest.raises(RemoteError) as caught:
        client.remote("things").refuse()
    assert (caught.value.remedy, caught.value.reason) == ("Give 1 at least.", "window")
    wait_for(lambda: "the window has 0 rows" in caplog.text, "the line in the log")
    assert "Traceback" not in caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_the_error_of_a_refused_call_does_not_refer_to_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    server, client = world.pair()
    server.register("things", Things(), ["take", "odd"])
    calls = {
        "unknown-object": lambda: client.remote("nothing").take(1),
        "unknown-method": lambda: client.remote("things").fail("x"),
        "unknown-factory": lambda: client.create("nothing"),
        "bad-result": lambda: client.remote("things").odd(),
    }
    for code, call in calls.items():
        with pytest.raises(RemoteError) as caught:
            call()
        assert (caught.value.code, caught.value.remedy) == (code, REMEDIES[code])
        assert "log" not in caught.value.remedy
    assert not [one for one in caplog.records if one.name == LOG]
