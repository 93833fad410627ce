"""``keys``: output, refusals, and the contents of the key files."""

from __future__ import annotations

import json
import random
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from aeron_spark.cli.main import cli
from aeron_spark.cli.signals import OperationError
from aeron_spark.errors import OptionError, ServerKeyChanged, SetupError, UsageError
from aeron_spark.keys import network_server, read_identity
from aeron_spark.protocol.keypair import fingerprint, keypair_from, new_keypair, public_text


def key(number: int) -> bytes:
    return new_keypair(random.Random(number).randbytes).public


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AERON_SPARK_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def run(*arguments: str) -> str:
    """Run a command and return its output. Raises the command's exception."""
    result = CliRunner().invoke(cli, ["keys", *arguments], standalone_mode=False, catch_exceptions=False)
    return result.output


def lines(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


def test_row_44_a_new_identity_is_shown_the_same_each_time(home: Path) -> None:
    (made,) = lines("new")
    pair = read_identity(home / "identity")
    assert made == {
        "public": public_text(pair.public),
        "fingerprint": fingerprint(pair.public),
        "identity": str(home / "identity"),
    }
    assert stat.S_IMODE((home / "identity").stat().st_mode) == 0o600
    assert lines("show") == lines("show") == [made]
    assert run("show") == f"{made['public']}\n"


def test_the_default_folder_is_below_xdg_config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AERON_SPARK_CONFIG_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    run("new")
    assert (tmp_path / "xdg" / "aeron-spark" / "identity").exists()


def test_an_identity_is_replaced_only_with_force(home: Path) -> None:
    first = lines("new")
    with pytest.raises(UsageError, match="--force"):
        run("new")
    assert lines("show") == first
    assert lines("new", "--force") != first


def test_an_identity_can_be_in_another_file_or_a_variable(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other"
    (made,) = lines("new", "--identity", str(path))
    assert lines("show", "--identity", str(path)) == [made]
    assert not home.exists()
    monkeypatch.setenv("MINE", "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=")
    (shown,) = lines("show", "--identity", "env:MINE")
    assert shown["public"] == public_text(keypair_from(bytes(range(1, 33))).public)


def test_the_key_of_a_server_is_shown_in_the_same_form(tmp_path: Path, home: Path) -> None:
    """Regression: no command printed the key that option ``serverKey`` takes."""
    made = lines("new", "--identity", str(home / "server"))
    assert lines("show", "--server") == made
    assert run("show", "--server") == f"{made[0]['public']}\n"
    other = lines("new", "--identity", str(tmp_path / "other"))
    assert lines("show", "--server", "--identity", str(tmp_path / "other")) == other


def test_no_command_prints_a_private_key(home: Path) -> None:
    printed = run("new") + run("new", "--force") + run("new", "--force", "--json") + run("show") + run("show", "--json")
    private = (home / "identity").read_text().splitlines()[1].removeprefix("private: ")
    assert len(private) == 44
    assert private not in printed


@pytest.mark.parametrize("identity", [[], ["--identity", "my own.key"]])
def test_show_without_an_identity_names_the_command_that_makes_one(
    identity: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the command of the remedy made another file than the one that was missing."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError) as missing:
        run("show", *identity)
    (command,) = re.findall(r"'aeron-spark keys (new .*)'", missing.value.remedy)
    made = run(*shlex.split(command))
    assert run("show", *identity) == made


def test_the_readme_makes_a_key_before_showing_it() -> None:
    """Regression: followed in its order, the README's ``keys show`` found no key."""
    readme = (Path(__file__).resolve().parents[3] / "README.md").read_text()
    assert 0 < readme.index("aeron-spark keys new\n") < readme.index("aeron-spark keys show")


def test_servers_are_trusted_listed_and_forgotten(home: Path) -> None:
    assert "no known servers" in run("list")
    assert lines("trust", "LocalHost:4000", public_text(key(1)), "--comment", "my own") == [
        {"server": "127.0.0.1:4000", "key": public_text(key(1)), "added": True}
    ]
    assert "is already known" in run("trust", "127.0.0.1:4000", public_text(key(1)))
    run("trust", "[::1]:4000", public_text(key(2)))
    assert lines("list") == [
        {
            "server": "127.0.0.1:4000",
            "host": "127.0.0.1",
            "port": 4000,
            "key": public_text(key(1)),
            "fingerprint": fingerprint(key(1)),
            "comment": "my own",
        },
        {
            "server": "[::1]:4000",
            "host": "::1",
            "port": 4000,
            "key": public_text(key(2)),
            "fingerprint": fingerprint(key(2)),
            "comment": "",
        },
    ]
    listed = run("list")
    for expected in ("[::1]:4000", fingerprint(key(1)), public_text(key(2)), "my own"):
        assert expected in listed
    assert run("forget", "localhost:4000") == "forgot 127.0.0.1:4000\n"
    assert lines("forget", "[::1]:4000") == [{"server": "[::1]:4000", "forgotten": True}]
    assert lines("list") == []


def test_a_server_with_a_control_port_is_trusted_and_forgotten_like_it_is_connected_to(home: Path) -> None:
    assert "now known" in run("trust", "host:4000:4100", public_text(key(1)))
    assert "already known" in run("trust", "host:4000", public_text(key(1)))
    assert run("forget", "host:4000:4200").strip() == "forgot host:4000"


def test_row_41_another_key_of_a_known_server_is_not_trusted(home: Path) -> None:
    run("trust", "host:4000", public_text(key(1)))
    before = (home / "known_servers").read_bytes()
    with pytest.raises(ServerKeyChanged, match="keys forget host:4000"):
        run("trust", "host:4000", public_text(key(2)))
    assert (home / "known_servers").read_bytes() == before


def test_the_remedy_for_a_changed_key_is_a_working_command() -> None:
    server = network_server("fe80::1%eth0", 4000)
    run("trust", str(server), public_text(key(1)))
    with pytest.raises(ServerKeyChanged) as raised:
        run("trust", str(server), public_text(key(2)))
    run(*raised.value.remedy.rpartition("aeron-spark keys ")[2].split())
    run("trust", str(server), public_text(key(2)))


def test_the_error_for_an_unknown_server_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="'aeron-spark keys list' shows them"):
        run("forget", "host:4000")
    file = str(tmp_path / "servers")
    run("trust", "prices.example:4000", public_text(key(1)), "--known-servers", file)
    with pytest.raises(OperationError, match=r"Did you mean prices\.example:4000\?"):
        run("forget", "price.example:4000", "--known-servers", file)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("trust", "host", public_text(key(1))), "has no port"),
        (("trust", "host:4000", "AAAA"), "is not a public key"),
        (("forget", "host:99999"), "the data port is 99999, expected 1 to 65535"),
    ],
)
def test_a_wrong_argument_is_an_option_error(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        run(*arguments)


def test_the_error_for_an_unknown_command_names_the_nearest_one() -> None:
    with pytest.raises(click.UsageError, match="Did you mean 'forget'"):
        run("forgot", "host:4000")


@pytest.mark.slow
def test_the_passphrase_of_an_identity_can_be_set_changed_and_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "one")
    (made,) = lines("new", "--passphrase")
    assert "private" not in (home / "identity").read_text()
    assert lines("show") == [made]
    runner = CliRunner()
    changed = runner.invoke(cli, ["keys", "passphrase"], input="two\ntwo\n", standalone_mode=False)
    assert changed.exception is None
    with pytest.raises(SetupError, match="wrong passphrase for the identity"):
        run("show")
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "two")
    assert lines("passphrase", "--remove") == [made]
    monkeypatch.delenv("AERON_SPARK_PASSPHRASE")
    assert lines("show") == [made]


def test_a_new_passphrase_is_asked_for_twice(home: Path) -> None:
    result = CliRunner().invoke(cli, ["keys", "new", "--passphrase"], input="one\nother\none\none\n")
    assert result.exit_code == 0, result.output
    assert "do not match" in result.output
    with pytest.raises(SetupError, match=r"needs a passphrase, but .*AERON_SPARK_PASSPHRASE"):
        run("show")
