"""A reload applies the live options and the clients file, or nothing, and names what needs a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import DataFormatError, OptionError, RefusedError, SetupError
from aeron_spark.options import LiveOptions, OptionChanges, ServerOptions
from aeron_spark.options.declaration import Restart
from aeron_spark.protocol.keypair import keypair_from, public_text
from aeron_spark.server.command_server import CommandServer
from aeron_spark.server.event_log import EventReported
from tests.unit.endpoint.endpoints import World, server_options


class Reloaded:
    """A server that is not started. A test changes its options and its clients file, and reloads both."""

    def __init__(self, folder: Path) -> None:
        self.options: dict[str, Any] = {}
        self.clients = folder / "authorized_keys"
        self.secret = folder / "secret"
        self.secret.write_text("0123456789abcdef0123456789abcdef")
        self.secret.chmod(0o600)
        self._fixed = {
            "aeron_dir": str(folder / "aeron"), "streams_dir": str(folder / "streams"),
            "identity": str(folder / "identity"), "authorized_keys": str(self.clients),
            "shared_secret_file": str(self.secret),
        }  # fmt: skip
        self.write_clients("name=desk-7 streams=*:read,write")
        self.server = CommandServer("ipc:", self._fixed, None, self._read_options)
        self.reported: list[EventReported] = []
        self.server._facts.on(EventReported, self.reported.append)

    def write_clients(self, *grants: str) -> None:
        keys = [public_text(keypair_from(bytes([number] * 32)).public) for number in range(1, len(grants) + 1)]
        self.clients.write_text("\n".join(f"{grant} {key}" for grant, key in zip(grants, keys, strict=True)))
        self.clients.chmod(0o600)

    def reload(self) -> dict[str, Any]:
        return self.server._reload_files({})

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.reported]

    def _read_options(self) -> ServerOptions:
        return ServerOptions.parse("ipc:", {**self._fixed, **self.options})


@pytest.fixture
def reloaded(tmp_path: Path) -> Iterator[Reloaded]:
    one = Reloaded(tmp_path)
    yield one
    one.server.close()


def parsed(**options: Any) -> ServerOptions:
    return ServerOptions.parse("127.0.0.1:1", options)


def test_live_options_apply_and_the_others_stay_listed_until_a_restart() -> None:
    live = LiveOptions(parsed(max_connections=10, workers=8))
    running, addresses = live.value, live.value.addresses
    configured = ServerOptions.parse("127.0.0.1:2", {"max_connections": 20, "workers": 9, "deny": "10.0.0.0/8"})
    expected = OptionChanges(("deny", "maxConnections"), ("bind", "workers"))
    assert live.compare(configured) == expected
    assert (live.value, live.restart_needed) == (running, ())
    assert live.replace(configured) == expected
    assert (live.value.max_connections, live.value.workers, live.value.addresses) == (20, 8, addresses)
    assert live.compare(configured) == OptionChanges((), ("bind", "workers"))
    assert live.restart_needed == ("bind", "workers")
    assert live.compare(live.value) == OptionChanges((), ())


def restart_table() -> str:
    """Return the table of docs/operations.md."""
    declared = ServerOptions.options().values()
    rows = (
        f"| {', '.join(f'`{option.name}`' for option in declared if option.restart is reason)} | {reason.value} |"
        for reason in Restart
    )
    return "\n".join(["| options that need a restart | reason |", "|---|---|", *rows]) + "\n"


def test_an_option_is_live_or_has_a_reason_why_it_needs_a_restart_and_the_document_names_it() -> None:
    options = ServerOptions.options().values()
    assert [option.name for option in options if option.live == (option.restart is not None)] == []
    page = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    assert restart_table() in page
    said = page.partition("These options apply at once:")[2].partition(". ")[0]
    assert set(re.findall(r"`(\w+)`", said)) == {option.name for option in options if option.live}


def test_a_reload_reports_and_returns_what_changed(reloaded: Reloaded) -> None:
    reloaded.options = {"max_connections": 5, "workers": 3}
    reloaded.write_clients("name=desk-7 streams=*:read", "name=new streams=*:read")
    assert reloaded.reload() == {
        "changed": ["maxConnections"],
        "restart_needed": ["workers"],
        "clients": {"added": ["new"], "removed": [], "changed": ["desk-7"], "narrowed": ["desk-7"]},
    }
    assert reloaded.names == ["clients_changed", "reloaded"]
    assert reloaded.reported[1].fields["changed"] == (
        "maxConnections",
        "clients added: new",
        "clients changed: desk-7",
        "clients narrowed: desk-7",
    )
    assert reloaded.server._live.value.max_connections == 5


def test_a_wrong_option_or_clients_file_changes_nothing_and_is_reported(reloaded: Reloaded) -> None:
    before = reloaded.server._live.value
    reloaded.options = {"max_conections": 5}
    with pytest.raises(OptionError, match="max_conections"):
        reloaded.reload()
    reloaded.options = {"max_connections": 5}
    reloaded.write_clients("name=desk-7 stream=*:read")
    with pytest.raises(DataFormatError, match="line 1 of") as wrong:
        reloaded.reload()
    assert reloaded.server._live.value == before
    assert reloaded.names == ["reload_failed", "reload_failed"]
    assert reloaded.reported[0].fields["files"] == ("configuration",)
    assert reloaded.reported[1].fields == {
        "files": ("configuration", "clients"), "error": wrong.value.what, "remedy": wrong.value.remedy,
    }  # fmt: skip


def test_a_wrong_clients_file_with_an_unchanged_configuration_leaves_only_the_clients_file_unused(
    reloaded: Reloaded,
) -> None:
    reloaded.write_clients("name=desk-7 stream=*:read")
    with pytest.raises(DataFormatError):
        reloaded.reload()
    reloaded.server._read_options = None  # as a server that a program has made
    with pytest.raises(DataFormatError):
        reloaded.reload()
    assert [event.fields["files"] for event in reloaded.reported] == [("clients",), ("clients",)]


def test_options_that_cannot_apply_leave_the_clients_file_as_it_was(reloaded: Reloaded) -> None:
    before = reloaded.server._live.value
    reloaded.options = {"max_connections": 5}
    reloaded.write_clients()
    reloaded.secret.unlink()
    with pytest.raises(SetupError, match="secret"):
        reloaded.reload()
    assert reloaded.server._live.value == before
    assert reloaded.names == ["reload_failed"]  # the clients file was not read: the last client is still there
    assert reloaded.reported[0].fields["files"] == ("configuration",)


def test_changed_limits_and_filters_apply_to_the_next_client(world: World) -> None:
    live = LiveOptions(server_options())
    server = world.server(live)
    first = world.client()
    reported: list[Mapping[str, Any]] = []
    server.facts.on(EventReported, lambda event: reported.append(event.fields) if event.name == "refused" else None)
    live.replace(server_options(max_connections=1))
    with pytest.raises(RefusedError) as refused:
        world.client(connect=False).connect(0.3)
    assert refused.value.reason == "full"
    assert reported[-1]["value"] == 1
    assert first.connected
    live.replace(server_options(deny=(lambda candidate: True,)))
    with pytest.raises(RefusedError) as denied:
        world.client(connect=False).connect(0.3)
    assert denied.value.reason == "not-permitted"
