"""A reload applies the live options and the clients file, or nothing, and names what needs a restart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import DataFormatError, OptionError, RefusedError, SetupError
from aeron_spark.keys.client_table import ClientsChange
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.access import Filters
from aeron_spark.protocol.limits import Limits
from aeron_spark.server.live_options import LIVE, RESTART_REASONS, OptionChanges, compare, restart_table, with_live
from aeron_spark.server.reloading import Reloader
from aeron_spark.server.settings import ServerSettings
from tests.unit.connection.endpoints import LINK, NO_LIMITS, World, wait_for


class Reloadable:
    """A server that records what a reload does."""

    def __init__(self) -> None:
        self.options = ServerOptions.parse("127.0.0.1:1")
        self.is_clients_file_read = False
        self.refusal: SetupError | None = None
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

    def preview_options(self, configured: ServerOptions) -> OptionChanges:
        if self.refusal is not None:
            raise self.refusal
        return compare(self.options, configured)

    def apply_options(self, configured: ServerOptions) -> OptionChanges:
        changes = compare(self.options, configured)
        self.options = with_live(self.options, configured)
        return changes


def parsed(**options: Any) -> ServerOptions:
    return ServerOptions.parse("127.0.0.1:1", options)


def test_live_options_apply_and_the_others_stay_listed_until_a_restart() -> None:
    running = parsed(max_connections=10, workers=8)
    configured = ServerOptions.parse("127.0.0.1:2", {"max_connections": 20, "workers": 9, "deny": "10.0.0.0/8"})
    assert compare(running, configured) == OptionChanges(("deny", "maxConnections"), ("bind", "workers"))
    applied = with_live(running, configured)
    assert (applied.max_connections, applied.workers, applied.addresses) == (20, 8, running.addresses)
    assert compare(applied, configured) == OptionChanges((), ("bind", "workers"))
    assert compare(running, running) == OptionChanges((), ())


def test_each_live_option_is_an_option_of_a_server() -> None:
    assert set(ServerOptions.options()) >= LIVE


def test_each_other_option_has_one_reason_why_it_needs_a_restart_and_the_document_names_it() -> None:
    restarting = [field for fields in RESTART_REASONS.values() for field in fields]
    assert sorted([*restarting, *LIVE]) == sorted(ServerOptions.options())
    page = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    assert restart_table() in page
    said = page.partition("These options apply at once:")[2].partition(". ")[0]
    assert set(re.findall(r"`(\w+)`", said)) == {ServerOptions.options()[field].name for field in LIVE}


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
    server, before = Reloadable(), Reloadable().options
    with pytest.raises(OptionError, match="max_conections"):
        Reloader(server, lambda: parsed(max_conections=5)).run({})
    server.clients = DataFormatError("line 3 is wrong", remedy="Correct it.")
    with pytest.raises(DataFormatError, match="line 3 is wrong"):
        Reloader(server, lambda: parsed(max_connections=5)).run({})
    assert server.options == before
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


def test_options_that_cannot_apply_leave_the_clients_file_as_it_was() -> None:
    server, before = Reloadable(), Reloadable().options
    server.refusal = SetupError("the file of the shared secret is gone", remedy="Restore it.")
    with pytest.raises(SetupError, match="shared secret"):
        Reloader(server, lambda: parsed(max_connections=5)).run({})
    assert not server.is_clients_file_read
    assert server.options == before
    assert [event for event, _ in server.reported] == ["reload_failed"]


def test_changed_limits_and_filters_apply_to_the_next_client(world: World) -> None:
    settings = ServerSettings(link=LINK, limits=NO_LIMITS)
    server = world.server(settings)
    first = world.client()
    reported: list[Mapping[str, Any]] = []
    server.events.observe(lambda name, fields: reported.append(fields) if name == "refused" else None)
    limits = Limits(connections=1, handshakes_per_second=0, pending_per_address=0)
    server.apply_limits(ServerSettings(link=LINK, limits=limits))
    wait_for(lambda: server._runner._machine.resources.admission.limits == limits, "the new limits")
    with pytest.raises(RefusedError) as refused:
        world.client(connect=False).connect(0.3)
    assert refused.value.reason == "full"
    assert reported[-1]["value"] == 1
    assert first.connected
    nobody = Filters(deny=(lambda candidate: True,))
    server.apply_limits(ServerSettings(link=LINK, limits=NO_LIMITS, filters=nobody))
    wait_for(lambda: server._runner.access.filters == nobody, "the new filters")
    with pytest.raises(RefusedError) as denied:
        world.client(connect=False).connect(0.3)
    assert denied.value.reason == "not-permitted"
