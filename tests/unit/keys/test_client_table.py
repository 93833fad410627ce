"""The grants of a clients file that changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError, SetupError
from aeron_spark.keys.clients_file import ClientsChange, ClientTable
from aeron_spark.protocol.keypair import new_keypair, public_text

KEYS = [new_keypair(random.Random(number).randbytes).public for number in range(3)]
TEXTS = [public_text(key) for key in KEYS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "authorized_keys"
    write(made, f"name=a streams=x:read {TEXTS[0]}\nname=b {TEXTS[1]}")
    return made


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def test_a_change_of_the_file_is_read_once(path: Path) -> None:
    table = ClientTable(path)
    assert table.refresh() is None
    write(path, f"name=a streams=x:read,write {TEXTS[0]}\nname=c {TEXTS[2]}")
    assert table.refresh() == ClientsChange(added=("c",), removed=("b",), changed=("a",), keys=2)
    assert table.refresh() is None
    assert table.refresh(force=True) == ClientsChange((), (), (), keys=2)
    grants = [table.grant(key) for key in KEYS]
    assert grants[0].may_use("x", "write")
    assert grants[1] is None
    assert len(table) == 2


def test_a_wrong_version_is_reported_once_and_the_last_good_one_stays(path: Path) -> None:
    table = ClientTable(path)
    write(path, "name=a stream=x:read " + TEXTS[0])
    with pytest.raises(DataFormatError, match=r"line 1 of .* is wrong"):
        table.refresh()
    assert table.refresh() is None
    path.unlink()
    with pytest.raises(SetupError, match="does not exist"):
        table.refresh()
    assert table.refresh() is None
    grant = table.grant(KEYS[0])
    assert grant.may_use("x", "read")
    write(path, f"name=a {TEXTS[0]}")
    assert table.refresh() == ClientsChange((), ("b",), ("a",), ("a",), 1)


def test_a_replaced_symbolic_link_is_a_change(path: Path, tmp_path: Path) -> None:
    """Kubernetes replaces a link to a folder when a mounted secret changes."""
    link, other, draft = tmp_path / "keys", tmp_path / "other", tmp_path / "draft"
    link.symlink_to(path)
    table = ClientTable(link)
    write(other, f"name=a streams=x:read {TEXTS[0]}")
    draft.symlink_to(other)
    draft.replace(link)
    assert table.refresh() == ClientsChange((), ("b",), (), keys=1)


@pytest.mark.parametrize("text", [None, "wrong"])
def test_a_missing_or_wrong_file_at_the_start_is_an_error(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        write(path, text)
    with pytest.raises((SetupError, DataFormatError)):
        ClientTable(path)
