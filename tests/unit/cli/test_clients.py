"""``aeron-spark clients``: lists, checks and tests the keys of a clients file, without a JVM."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from aeron_spark.cli.main import main
from aeron_spark.protocol.keypair import new_keypair, public_text

KEYS = [public_text(new_keypair(random.Random(number).randbytes).public) for number in range(4)]
LINES = [
    "role prices streams=prices.*:read",
    "# comment",
    f"role=prices name=desk-7 tag=desk-* connections=4 {KEYS[0]} Alice's desk",
    f"streams=orders:read,write writers=edge-* calls=a.* messages=send files=send name=edge {KEYS[1]}",
    f"all name=old expires=2020-01-01 {KEYS[2]}",
    KEYS[3],
]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clients file in its default place."""
    monkeypatch.setenv("AERON_SPARK_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "authorized_keys"
    path.write_text("\n".join(LINES))
    path.chmod(0o600)
    return path


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["clients", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list_has_names_grants_conditions_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("list", capsys=capsys)
    assert code == 0
    cells = [line.split("\t") for line in out.splitlines()]
    assert cells[:3] == [
        ["desk-7", KEYS[0], "streams=prices.*:read", "tag=desk-*", "connections=4", "Alice's desk"],
        [
            "edge", KEYS[1], "streams=orders:read,write writers=edge-* calls=a.* messages=send files=send",
            *("-", "-", "-"),
        ],
        ["old", KEYS[2], "all", "expires=2020-01-01", "-", "-"],
    ]  # fmt: skip
    assert cells[3][2] == "connect and ping"
    listed = [json.loads(line) for line in run("list", "--json", capsys=capsys)[1].splitlines()]
    assert [(one["name"], one["line"]) for one in listed][:3] == [("desk-7", 3), ("edge", 4), ("old", 5)]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["desk-7", "read", "prices.eu"], 0, "allowed by line 3 (role prices) under the conditions tag=desk-*"),
        ([KEYS[0], "read", "prices.eu"], 0, "allowed by line 3 (role prices) under the conditions tag=desk-*"),
        (["desk-7", "write", "prices.eu"], 1, "refused: no grant of desk-7 allows write prices.eu"),
        (["edge", "write", "orders"], 0, "allowed by line 4"),
        (["edge", "writer", "edge-1"], 0, "allowed by line 4"),
        (["edge", "writer", "other"], 1, "refused: no grant of edge allows writer other"),
        (["desk-7", "writer", "any"], 0, "allowed by line 3 under the conditions tag=desk-*"),
        (["edge", "call", "a.b"], 0, "allowed by line 4"),
        (["edge", "call", "b.a"], 1, "refused: no grant of edge allows call b.a"),
        (["edge", "message-send"], 0, "allowed by line 4"),
        (["edge", "message-receive"], 1, "refused: no grant of edge allows message-receive"),
        (["edge", "file-send"], 0, "allowed by line 4"),
        (["desk-7", "connect"], 0, "allowed by line 3 under the conditions tag=desk-*"),
        (["old", "connect"], 1, "refused: the key old expired at 2020-01-01"),
    ],
)
def test_an_action_is_tested_with_the_reason(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", *arguments, capsys=capsys)[:2] == (code, f"{text}\n")
    as_json = json.loads(run("test", *arguments, "--json", capsys=capsys)[1])
    assert as_json["allowed"] == (code == 0)
    assert as_json["conditions"] == {"desk-7": "tag=desk-*", KEYS[0]: "tag=desk-*", "old": "expires=2020-01-01"}.get(
        arguments[0], ""
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["desk-8", "connect"], 1, "desk-8 is not a client in"),
        (["desk-7", "reed", "x"], 2, "unknown action 'reed'. Choose from connect, read"),
        (["desk-7", "read"], 2, "action 'read' needs the name of a stream"),
        (["desk-7", "connect", "x"], 2, "action 'connect' has no target"),
        (["aeron-spark:x", "connect"], 1, "is not a public key"),
    ],
)
def test_a_wrong_test_is_an_error(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("test", *arguments, capsys=capsys)
    assert found[0] == code
    assert text in found[2]


def test_check_prints_each_finding_with_its_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("check", capsys=capsys)
    assert code == 0
    assert out.splitlines() == [
        f"{file}:5: warning: the key old expired at 2020-01-01. Remove the line.",
        f"{file}: 4 keys, 0 wrong lines",
    ]
    file.write_text("\n".join([*LINES, "stream=x:read", "role=x " + KEYS[0]]))
    code, out, _ = run("check", str(file), capsys=capsys)
    assert code == 2
    assert f"{file}:7: error: 'stream=x:read' is neither an option nor a key. Did you mean 'streams'?" in out
    assert f"{file}:8: error: its key is already on line 3" in out
    assert out.splitlines()[-1] == f"{file}: 4 keys, 2 wrong lines"
    found = [json.loads(line) for line in run("check", "--json", capsys=capsys)[1].splitlines()]
    assert [(one["line"], one["level"]) for one in found] == [(5, "warning"), (7, "error"), (8, "error")]
    for command in (["list"], ["test", "desk-7", "connect"]):
        code, _, err = run(*command, capsys=capsys)
        assert (code, "line 7 of" in err) == (2, True)


def test_the_file_is_found_by_its_path_or_by_the_configuration(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "clients"
    other.write_text(f"name=only {KEYS[0]}")
    other.chmod(0o600)
    config = tmp_path / "server.toml"
    config.write_text(f'bind = "127.0.0.1:20121"\nauthorizedKeys = "{other}"\n')
    for arguments in (["--authorized-keys", str(other)], ["--config", str(config)]):
        assert run("list", *arguments, capsys=capsys)[1].startswith("only\t")
    both = run("list", "--authorized-keys", str(other), "--config", str(config), capsys=capsys)
    assert (both[0], "given twice" in both[2]) == (2, True)
    file.unlink()
    missing = run("list", capsys=capsys)
    assert (missing[0], "does not exist" in missing[2]) == (2, True)
