"""Key files that other users can read or change are refused, and a replacement is atomic."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.errors import SetupError, WaitTimeout
from aeron_spark.keys import key_files

Reader = Callable[[Path], bytes | None]


def write_file(path: Path, content: bytes = b"x", mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("reader", [key_files.read_secret, key_files.read_public])
def test_a_private_file_is_read_and_a_missing_one_is_none(reader: Reader, tmp_path: Path) -> None:
    assert reader(write_file(tmp_path / "a", b"content")) == b"content"
    assert reader(tmp_path / "b") is None


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_secret_with_a_private_mode_is_read(mode: int, tmp_path: Path) -> None:
    assert key_files.read_secret(write_file(tmp_path / "a", mode=mode)) == b"x"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666])
def test_row_44_a_secret_that_other_users_can_read_or_change_is_refused_with_the_remedy(
    mode: int, tmp_path: Path
) -> None:
    path = write_file(tmp_path / "a", mode=mode)
    with pytest.raises(SetupError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        key_files.read_secret(path)


@pytest.mark.parametrize(("mode", "is_refused"), [(0o644, False), (0o444, False), (0o620, True), (0o602, True)])
def test_other_users_may_read_but_not_change_a_public_file(mode: int, is_refused: bool, tmp_path: Path) -> None:
    path = write_file(tmp_path / "a", mode=mode)
    if is_refused:
        with pytest.raises(SetupError, match=f"can be changed by others.*run: chmod go-w {path}"):
            key_files.read_public(path)
    else:
        assert key_files.read_public(path) == b"x"


def test_a_symbolic_link_to_a_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write_file(tmp_path / "a"))
    with pytest.raises(SetupError, match="is a symbolic link"):
        key_files.read_secret(tmp_path / "link")
    assert key_files.read_public(tmp_path / "link") == b"x"


@pytest.mark.parametrize("reader", [key_files.read_secret, key_files.read_public])
def test_a_folder_and_a_pipe_are_refused_immediately(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("folder", "pipe"):
        with pytest.raises(SetupError, match="is not a file"):
            reader(tmp_path / name)
    with pytest.raises(SetupError, match="cannot be used"):
        reader(write_file(tmp_path / "a") / "below")


@pytest.mark.parametrize("reader", [key_files.read_secret, key_files.read_public])
def test_a_refused_file_is_closed(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    paths = [tmp_path / "folder", write_file(tmp_path / "open", mode=0o666)]
    before = len(os.listdir("/proc/self/fd"))
    for path in paths * 5:
        with pytest.raises(SetupError):
            reader(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
def test_a_secret_of_another_user_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a")
    os.chown(path, 12345, 12345)
    for reader in (key_files.read_secret, key_files.read_public):
        with pytest.raises(SetupError, match="belongs to user 12345"):
            reader(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a", b"x" * key_files.MAX_FILE_BYTES)
    assert key_files.read_secret(path)
    write_file(path, b"x" * (key_files.MAX_FILE_BYTES + 1))
    with pytest.raises(SetupError, match="larger than"):
        key_files.read_secret(path)


def test_a_file_is_created_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a"
    before = os.umask(0)
    try:
        assert key_files.create(path, b"first")
    finally:
        os.umask(before)
    assert not key_files.create(path, b"second")
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["a"], "a temporary file remains"


def test_a_replacement_of_a_symbolic_link_does_not_change_its_target(tmp_path: Path) -> None:
    target = write_file(tmp_path / "target", b"old")
    (tmp_path / "link").symlink_to(target)
    key_files.replace(tmp_path / "link", b"new")
    assert target.read_bytes() == b"old"
    assert key_files.read_secret(tmp_path / "link") == b"new"


def test_a_failed_replacement_keeps_the_old_file_and_deletes_its_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(SetupError, match="cannot be used"):
        key_files.replace(tmp_path / "a", b"x")
    assert os.listdir(tmp_path) == ["a"]


def test_readers_get_the_complete_old_or_new_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = {bytes([letter]) * 100_000 for letter in b"abc"}
    key_files.replace(path, next(iter(contents)))
    done = threading.Event()

    def replace_repeatedly() -> None:
        for _ in range(30):
            for content in contents:
                key_files.replace(path, content)
        done.set()

    writer = threading.Thread(target=replace_repeatedly)
    writer.start()
    reads = 0
    while not done.is_set():
        assert key_files.read_secret(path) in contents
        reads += 1
    writer.join()
    assert reads > 10


def test_the_error_of_a_second_writer_names_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "a"
    times_out = pytest.raises(WaitTimeout, match=r"another process that writes keys \(lock .*a\.lock")
    with key_files.only_writer(path), times_out, key_files.only_writer(path, 0.05):
        pytest.fail("two writers")
    with key_files.only_writer(path, 0.0):
        assert (tmp_path / "a.lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a file system")
def test_the_remedies_for_a_public_file_of_root_let_the_servers_user_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the remedy for mode 0666, chmod 600, locked out a server of another user."""
    path = write_file(tmp_path / "clients", mode=0o666)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(SetupError) as caught:
        key_files.read_public(path)
    subprocess.run(caught.value.remedy.partition("run: ")[2].split(), check=True)
    assert path.stat().st_mode & 0o777 == 0o644
    assert key_files.read_public(path) == b"x"
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(SetupError, match=rf"cannot be read by user 0\. .* chmod a\+r {path}"):
        key_files.read_public(path)
