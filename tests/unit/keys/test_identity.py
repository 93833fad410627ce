"""The file of an identity is private, and each change of it is detected."""

from __future__ import annotations

import base64
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aeron_spark.errors import AeronSparkError, DataFormatError, SetupError, UsageError
from aeron_spark.keys.stores import create_identity, ensure_identity, load_identity, read_identity, set_passphrase
from aeron_spark.protocol.keypair import keypair_from, public_text

PRIVATE_KEY = bytes(range(1, 33))
KEY_PAIR = keypair_from(PRIVATE_KEY)
PRIVATE_BASE64 = base64.b64encode(PRIVATE_KEY).decode()
IDENTITY_FILE = f"aeron-spark identity 1\nprivate: {PRIVATE_BASE64}\npublic: {public_text(KEY_PAIR.public)}\n"


def write_private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_row_44_an_identity_persists_in_a_file_of_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "identity"
    created = create_identity(path, entropy=lambda count: PRIVATE_KEY[:count])
    assert created == KEY_PAIR
    assert path.read_text() == IDENTITY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_identity(path) == load_identity(str(path)) == KEY_PAIR


def test_an_identity_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    first = create_identity(path)
    with pytest.raises(UsageError, match=r"already.*--force"):
        create_identity(path)
    assert read_identity(path) == first
    second = create_identity(path, force=True)
    assert read_identity(path) == second != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_concurrent_callers_get_the_same_new_identity(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "identity"
    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(lambda _: ensure_identity(path), range(16)))
    assert set(pairs) == {read_identity(path)}
    assert [one.name for one in path.parent.iterdir()] == ["identity"]


def test_an_identity_can_be_in_an_environment_variable(tmp_path: Path) -> None:
    assert load_identity("env:KEY", {"KEY": f" {PRIVATE_BASE64}\n"}) == KEY_PAIR
    for environ in ({}, {"KEY": ""}):
        with pytest.raises(SetupError, match="variable KEY of the identity 'env:KEY' is not set"):
            load_identity("env:KEY", environ)
    with pytest.raises(DataFormatError, match="the environment variable KEY is not a private key"):
        load_identity("env:KEY", {"KEY": PRIVATE_BASE64[:-4]})


def test_an_identity_in_a_variable_is_read_from_the_environment_of_the_process_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AERON_SPARK_TEST_KEY", PRIVATE_BASE64)
    assert load_identity("env:AERON_SPARK_TEST_KEY") == KEY_PAIR


def test_the_caller_can_map_a_file_name_to_a_path(tmp_path: Path) -> None:
    write_private(tmp_path / "key", IDENTITY_FILE)
    assert load_identity("key", find=lambda name: tmp_path / name) == KEY_PAIR


def test_the_error_of_a_missing_identity_names_the_command_that_creates_it(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no identity in .*aeron-spark keys new"):
        read_identity(tmp_path / "identity")


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_an_identity_that_other_users_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = write_private(tmp_path / "identity", IDENTITY_FILE)
    assert read_identity(path) == KEY_PAIR
    path.chmod(mode)
    for read in (read_identity, ensure_identity):
        with pytest.raises(SetupError, match="chmod 600"):
            read(path)


def test_a_symbolic_link_to_an_identity_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write_private(tmp_path / "identity", IDENTITY_FILE))
    for read in (read_identity, ensure_identity):
        with pytest.raises(SetupError, match="symbolic link"):
            read(tmp_path / "link")


BROKEN_FILES = {
    "empty": "",
    "another header": IDENTITY_FILE.replace("identity 1", "identity 2"),
    "no public key": "".join(IDENTITY_FILE.splitlines(keepends=True)[:2]),
    "no private key": "".join(IDENTITY_FILE.splitlines(keepends=True)[::2]),
    "another public key": IDENTITY_FILE.replace(
        public_text(KEY_PAIR.public), public_text(keypair_from(PRIVATE_KEY[::-1]).public)
    ),
    "private key twice": IDENTITY_FILE + IDENTITY_FILE.splitlines(keepends=True)[1],
    "one more line": IDENTITY_FILE + "comment: mine\n",
    "a short key": IDENTITY_FILE.replace(PRIVATE_BASE64, PRIVATE_BASE64[4:]),
    "not base64": IDENTITY_FILE.replace(PRIVATE_BASE64, PRIVATE_BASE64[:-2] + "!="),
    "another alphabet": IDENTITY_FILE.replace("aeron-spark identity", "äron-spark identity"),
}


@pytest.mark.parametrize("text", BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_the_error_of_a_broken_identity_does_not_contain_the_private_key(text: str, tmp_path: Path) -> None:
    assert text != IDENTITY_FILE
    path = write_private(tmp_path / "identity", text)
    for read in (read_identity, ensure_identity):
        with pytest.raises(DataFormatError) as raised:
            read(path)
        assert str(path) in str(raised.value)
        assert raised.value.remedy
        assert PRIVATE_BASE64[4:-4] not in f"{raised.value}{raised.value.__context__}"
    assert path.read_text() == text


def test_a_change_of_any_character_of_an_identity_is_detected(tmp_path: Path, rng: random.Random) -> None:
    path = write_private(tmp_path / "identity", IDENTITY_FILE)
    assert read_identity(path) == KEY_PAIR
    for at in range(len(IDENTITY_FILE) - 1):  # all but the last line end
        changed = chr(ord(IDENTITY_FILE[at]) ^ (1 << rng.randrange(7)))
        write_private(path, IDENTITY_FILE[:at] + changed + IDENTITY_FILE[at + 1 :])
        try:
            found = read_identity(path)
        except AeronSparkError:
            continue
        # X25519 ignores five bits of a private key, and base64 ignores some bits of the last character before '='
        assert found.public == KEY_PAIR.public, at
        assert IDENTITY_FILE.index(PRIVATE_BASE64) <= at < IDENTITY_FILE.index(PRIVATE_BASE64) + len(PRIVATE_BASE64), at


@pytest.mark.slow
def test_an_encrypted_identity_needs_its_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "correct horse")
    path = tmp_path / "identity"
    pair = create_identity(path, passphrase="correct horse")
    text = path.read_text()
    assert base64.b64encode(pair.private).decode() not in text
    assert read_identity(path) == pair

    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "correct horse ")
    with pytest.raises(SetupError, match="wrong passphrase for the identity"):
        read_identity(path)
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "correct horse")
    other = public_text(KEY_PAIR.public)
    with pytest.raises(SetupError, match="or the file was changed"):
        read_identity(write_private(tmp_path / "swapped", text.replace(public_text(pair.public), other)))
    assert set_passphrase(path, "") == pair
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
def test_an_encrypted_key_of_another_format_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: str, why: str
) -> None:
    monkeypatch.setenv("AERON_SPARK_PASSPHRASE", "any")
    path = write_private(
        tmp_path / "identity", f"aeron-spark identity 1\nsealed: {sealed}\npublic: {public_text(KEY_PAIR.public)}\n"
    )
    with pytest.raises(DataFormatError, match=why):
        read_identity(path)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_in_place_of_an_identity_is_an_error(tmp_path: Path, force: bool) -> None:
    with pytest.raises(SetupError, match=r"is a folder\. Name a file in it\."):
        create_identity(tmp_path, force=force)
