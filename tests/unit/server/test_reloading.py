"""A reload applies the live options and the clients file, or nothing, and names what needs a restart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import DataFormatError, OptionError, RefusedError, SetupError
from aeron_spark.keys.client_table import ClientsChange
from aeron_spark.options import LiveOptions, OptionChanges, ServerOptions
from aeron_spark.options.declaration import Restart
from aeron_spark.server.reloading import Reloader
from aeron_spark.server.server_facts import EventReported
from tests.unit.connection.endpoints import World, server_options


class Reloadable:
    """A server that records what a reload does."""

    def __init__(self) -> None:
        self.options = LiveOptions(ServerOptions.parse("127.0.0.1:1"))
        self.is_clients_file_read = False
        self.clients: ClientsChange | Exception | None = None
        self.reported: list[tuple[str, dict[str, Any]]] = []
        self.events: Any = self

    def report(self, event: str, **fields: Any) -> None:
        self.reported.append((event, fields))

    def reload(self) -> ClientsChange | None:
        if isinstance(self.clients, Exception):
            raise self.clients
        self.is_clients_file_read = True
        return self.clients


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


def test_a_reload_reports_and_returns_what_changed() -> None:
    server = Reloadable()
    server.clients = ClientsChange(("new",), (), ("desk-7",), ("desk-7",))
    result = Reloader(server, lambda: parsed(max_connections=5, workers=3)).run({})
    assert result == {
        "changed": ["maxConnections"],
        "restart_needed": ["workers"],
        "clients": {"added": ["new"], "removed": [], "changed": ["desk-7"], "narrowed": ["desk-7"]},
    }
    [(event, fields)] = server.reported
    assert event == "reloaded"
    assert fields["changed"] == (
        "maxConnections",
        "clients added: new",
        "clients changed: desk-7",
        "clients narrowed: desk-7",
    )


def test_a_wrong_option_or_clients_file_changes_nothing_and_is_reported() -> None:
    server = Reloadable()
    before = server.options.value
    with pytest.raises(OptionError, match="max_conections"):
        Reloader(server, lambda: parsed(max_conections=5)).run({})
    server.clients = DataFormatError("line 3 is wrong", remedy="Correct it.")
    with pytest.raises(DataFormatError, match="line 3 is wrong"):
        Reloader(server, lambda: parsed(max_connections=5)).run({})
    assert server.options.value == before
    assert [event for event, _ in server.reported] == ["reload_failed", "reload_failed"]
    assert server.reported[0][1]["files"] == ("configuration",)
    assert server.reported[1][1] == {
        "files": ("configuration", "clients"), "error": "line 3 is wrong", "remedy": "Correct it.",
    }  # fmt: skip


def test_a_wrong_clients_file_with_an_unchanged_configuration_leaves_only_the_clients_file_unused() -> None:
    server = Reloadable()
    server.clients = DataFormatError("line 3 is wrong", remedy="Correct it.")
    for read_options in (parsed, None):
        with pytest.raises(DataFormatError):
            Reloader(server, read_options).run({})
    assert [fields["files"] for _, fields in server.reported] == [("clients",), ("clients",)]


def test_options_that_cannot_apply_leave_the_clients_file_as_it_was(tmp_path: Path) -> None:
    server = Reloadable()
    server.options = LiveOptions(parsed(shared_secret_file=str(tmp_path / "gone")))
    before = server.options.value
    with pytest.raises(SetupError, match="shared secret"):
        Reloader(server, lambda: parsed(max_connections=5)).run({})
    assert not server.is_clients_file_read
    assert server.options.value == before
    assert [event for event, _ in server.reported] == ["reload_failed"]


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
