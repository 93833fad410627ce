"""The file of an identity: whole, private, and what it was when it was made."""

from __future__ import annotations

import base64
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aeron_spark.errors import AeronSparkError, DataFormatError, SetupError, UsageError
from aeron_spark.keys.identity import create_identity, ensure_identity, load_identity, read_identity, seal_identity
from aeron_spark.protocol.keypair import keypair_from, public_text

PRIVATE = bytes(range(1, 33))
PAIR = keypair_from(PRIVATE)
BASE64 = base64.b64encode(PRIVATE).decode()
FILE = f"aeron-spark identity 1\nprivate: {BASE64}\npublic: {public_text(PAIR.public)}\n"


def held(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_row_44_an_identity_persists_in_a_file_of_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "identity"
    made = create_identity(path, entropy=lambda count: PRIVATE[:count])
    assert made == PAIR
    assert path.read_text() == FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_identity(path) == load_identity(str(path)) == PAIR


def test_an_identity_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    first = create_identity(path)
    with pytest.raises(UsageError, match=r"already.*--force"):
        create_identity(path)
    assert read_identity(path) == first
    second = create_identity(path, force=True)
    assert read_identity(path) == second != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_many_that_need_an_identity_at_once_all_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "identity"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ensure_identity(path), range(16)))
    assert set(made) == {read_identity(path)}
    assert [one.name for one in path.parent.iterdir()] == ["identity"]


def test_an_identity_comes_from_the_environment(tmp_path: Path) -> None:
    assert load_identity("env:KEY", {"KEY": f" {BASE64}\n"}) == PAIR
    for environ in ({}, {"KEY": ""}):
        with pytest.raises(SetupError, match="variable KEY of the identity 'env:KEY' is not set"):
            load_identity("env:KEY", environ)
    with pytest.raises(DataFormatError, match="the environment variable KEY holds no private key"):
        load_identity("env:KEY", {"KEY": BASE64[:-4]})


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_SPARK_TEST_KEY", BASE64)
    assert load_identity("env:AERON_SPARK_TEST_KEY") == PAIR


def test_a_file_is_found_where_the_caller_says(tmp_path: Path) -> None:
    held(tmp_path / "key", FILE)
    assert load_identity("key", find=lambda name: tmp_path / name) == PAIR


def test_a_missing_identity_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no identity in .*aeron-spark keys new"):
        read_identity(tmp_path / "identity")


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_an_identity_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = held(tmp_path / "identity", FILE)
    assert read_identity(path) == PAIR
    path.chmod(mode)
    for read in (read_identity, ensure_identity):
        with pytest.raises(SetupError, match="chmod 600"):
            read(path)


def test_an_identity_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(held(tmp_path / "identity", FILE))
    for read in (read_identity, ensure_identity):
        with pytest.raises(SetupError, match="symbolic link"):
            read(tmp_path / "link")


BROKEN = {
    "empty": "",
    "another header": FILE.replace("identity 1", "identity 2"),
    "no public key": "".join(FILE.splitlines(keepends=True)[:2]),
    "no private key": "".join(FILE.splitlines(keepends=True)[::2]),
    "another public key": FILE.replace(public_text(PAIR.public), public_text(keypair_from(PRIVATE[::-1]).public)),
    "private twice": FILE + FILE.splitlines(keepends=True)[1],
    "a line more": FILE + "comment: mine\n",
    "a short key": FILE.replace(BASE64, BASE64[4:]),
    "not base64": FILE.replace(BASE64, BASE64[:-2] + "!="),
    "another alphabet": FILE.replace("aeron-spark identity", "äron-spark identity"),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_identity_is_refused_and_its_key_never_told(text: str, tmp_path: Path) -> None:
    assert text != FILE
    path = held(tmp_path / "identity", text)
    for read in (read_identity, ensure_identity):
        with pytest.raises(DataFormatError) as raised:
            read(path)
        assert str(path) in str(raised.value)
        assert raised.value.remedy
        assert BASE64[4:-4] not in f"{raised.value}{raised.value.__context__}"
    assert path.read_text() == text


def test_every_letter_of_an_identity_counts(tmp_path: Path, rng: random.Random) -> None:
    path = held(tmp_path / "identity", FILE)
    assert read_identity(path) == PAIR
    for at in range(len(FILE) - 1):  # without the last line end
        changed = chr(ord(FILE[at]) ^ (1 << rng.randrange(7)))
        held(path, FILE[:at] + changed + FILE[at + 1 :])
        try:
            found = read_identity(path)
        except AeronSparkError:
            continue
        # X25519 itself ignores five bits of a private key; the last letter before '=' carries bits of no byte
        assert found.public == PAIR.public, at
        assert FILE.index(BASE64) <= at < FILE.index(BASE64) + len(BASE64), at


def test_a_passphrase_opens_what_it_sealed_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "correct horse")
    path = tmp_path / "identity"
    pair = create_identity(path, passphrase="correct horse")
    text = path.read_text()
    assert base64.b64encode(pair.private).decode() not in text
    assert read_identity(path) == pair

    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "correct horse ")
    with pytest.raises(SetupError, match="the passphrase is not that of"):
        read_identity(path)
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "correct horse")
    other = public_text(PAIR.public)
    with pytest.raises(SetupError, match="or the file was changed"):
        read_identity(held(tmp_path / "swapped", text.replace(public_text(pair.public), other)))
    assert seal_identity(path, "") == pair
    assert path.read_text().splitlines()[1] == f"private: {base64.b64encode(pair.private).decode()}"


@pytest.mark.parametrize(
    ("sealed", "why"),
    [
        ("scrypt 15 8 1 AAAA", "not sealed by this version"),
        ("argon2 15 8 1 AAAA AAAA", "not sealed by this version"),
        ("scrypt x 8 1 AAAA AAAA", "not sealed by this version"),
        ("scrypt 15 8 1 A AAAA", "not sealed by this version"),
        ("scrypt 15 8 1 AAAA AAAA", "not sealed by this version"),
        ("scrypt 40 8 1 AAAA AAAA", "more work than this version"),
        ("scrypt 0 8 1 AAAA AAAA", "more work than this version"),
    ],
)
def test_a_sealed_key_of_another_form_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: str, why: str
) -> None:
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "any")
    path = held(
        tmp_path / "identity", f"aeron-spark identity 1\nsealed: {sealed}\npublic: {public_text(PAIR.public)}\n"
    )
    with pytest.raises(DataFormatError, match=why):
        read_identity(path)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_in_the_place_of_an_identity_is_named_as_one(tmp_path: Path, force: bool) -> None:
    with pytest.raises(SetupError, match=r"is a folder\. Name a file in it\."):
        create_identity(tmp_path, force=force)
