"""The configurations in deploy/ are valid, with the spelling of docs/options.md, and keep the clients file enforced."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from aeron_spark.cli.arguments import read_configuration
from aeron_spark.cli.main import main
from aeron_spark.options import ServerOptions
from aeron_spark.transport.addresses import HostPort
from tests.ports import free_ports
from tests.programs import ROOT
from tests.unit.deploy.test_kubernetes import OBJECTS
from tests.unit.deploy.test_service_unit import UNIT, parsed

TEXTS: Final = {
    "server.toml": (ROOT / "deploy" / "server.toml").read_text(),
    "kubernetes.yaml": OBJECTS["ConfigMap/aeron-spark"]["data"]["server.toml"],
}
NAMES: Final = {option.name for option in ServerOptions.options().values()}


@pytest.fixture(params=TEXTS)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    """The options of one of the files."""
    path = tmp_path / "server.toml"
    path.write_text(TEXTS[request.param])
    return read_configuration(path)


def test_a_configuration_is_valid(options: dict[str, object]) -> None:
    found = ServerOptions.parse("", options)
    (address,) = found.addresses
    assert (address.data_port, address.control_port) == (20121, 20122)
    assert found.allow_any_key is False
    assert str(found.authorized_keys).startswith("/etc/aeron-spark/")


def test_a_configuration_spells_the_options_as_their_documentation_does(options: dict[str, object]) -> None:
    assert set(options) <= NAMES
    assert HostPort.parse(str(options["http"])).port == 9464


def test_the_example_sets_nothing_that_moves_what_the_unit_places() -> None:
    """The commands of the unit find the server by its default folders."""
    unit = parsed(UNIT.read_text())["Service"]
    assert "--config" not in unit["ExecReload"]
    for name in ("streamsDir", "adminSocket", "aeronDir"):
        assert name in NAMES
        assert f"\n{name} " not in TEXTS["server.toml"]


def test_the_example_passes_the_check_of_the_unit_on_a_fresh_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = parsed(UNIT.read_text())["Service"]
    for name, value in (pair.split("=", 1) for pair in unit["Environment"].split()):
        monkeypatch.setenv(name, value.replace("/var/lib", str(tmp_path)).replace("/dev/shm", str(tmp_path)))
    (tmp_path / "aeron-spark").mkdir()  # the unit's StateDirectory
    configuration = tmp_path / "server.toml"
    text = TEXTS["server.toml"].replace("/etc/aeron-spark", str(tmp_path))
    configuration.write_text(text.replace(":20121", f":{free_ports()[0]}"))
    clients = tmp_path / "authorized_keys"
    clients.write_text("")
    clients.chmod(0o644)
    command, *arguments = unit["ExecStartPre"].replace("/etc/aeron-spark", str(tmp_path)).split()
    assert command == "/usr/bin/aeron-spark"
    code = main([*arguments, "--json"])
    output = capsys.readouterr().out
    assert code == 0, output
    assert '"error"' not in output
    assert list((tmp_path / "aeron-spark").iterdir()) == []  # the check made nothing
