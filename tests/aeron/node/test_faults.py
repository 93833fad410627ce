"""If a machine cannot run a node, the error has the cause and a remedy, and no files or processes remain."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.errors import InUseError, SetupError
from aeron_spark.waiting import wait_for
from tests.programs import start_python

TIMEOUT_S = 60.0
FEW_DESCRIPTORS = 16  # fewer than a node has open

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a file system")

START_AND_STOP_NODE = """
import sys
from aeron_spark import node
from aeron_spark.errors import AeronSparkError
try:
    with node.ensure(sys.argv[1]) as handle:
        print("started", handle.pid)
    node.stop(sys.argv[1])
except AeronSparkError as error:
    print(type(error).__name__, error)
"""


def run_program(code: str, *arguments: str, **environ: str) -> str:
    program = start_python(code, *arguments, environ=environ)
    return program.communicate(timeout=90)[0]


def test_without_java_the_error_says_to_install_it(own_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    output = run_program(WITHOUT_JAVA, str(own_dir), JAVA_HOME=str(tmp_path / "empty"), PATH=str(tmp_path / "empty"))
    assert output.startswith("SetupError Aeron needs Java 17 or newer, and no Java was found. Install one"), output
    assert node.status(own_dir).state == "absent"


# JPype also searches the Java folders of Linux distributions, which a test cannot empty. So this program patches JPype.
WITHOUT_JAVA = (
    """
import os, pathlib, sys
site = pathlib.Path(os.environ["JAVA_HOME"]) / "site"
site.mkdir()
(site / "sitecustomize.py").write_text(
    "import jpype._jvmfinder as f\\n"
    "def nowhere(self):\\n"
    "    raise f.JVMNotFoundException('none')\\n"
    "f.JVMFinder.get_jvm_path = nowhere\\n"
)
os.environ["PYTHONPATH"] = os.pathsep.join([str(site), os.environ["PYTHONPATH"]])
"""
    + START_AND_STOP_NODE
)


def test_java_11_is_refused_as_too_old(own_dir: Path, tmp_path: Path) -> None:
    server = tmp_path / "java-11" / "lib" / "server"
    server.mkdir(parents=True)
    (server / "libjvm.so").write_bytes(b"")
    (tmp_path / "java-11" / "release").write_text('JAVA_VERSION="11.0.22"\n')
    output = run_program(START_AND_STOP_NODE, str(own_dir), JAVA_HOME=str(tmp_path / "java-11"))
    assert output.startswith("SetupError Aeron needs Java 17 or newer, and "), output
    assert "is Java 11. Set JAVA_HOME to a newer Java" in output
    assert node.status(own_dir).state == "absent"


def test_two_nodes_cannot_share_an_archive(own_dir: Path, aeron_dir: Path, tmp_path: Path) -> None:
    other = aeron_dir.with_name(f"{aeron_dir.name}-2")
    with node.ensure(own_dir, archive_dir=tmp_path / "archive") as handle:
        with pytest.raises(InUseError, match=f"is used by the node of process {handle.pid}"):
            node.ensure(other, archive_dir=tmp_path / "archive")
        assert not other.exists()


def test_a_node_without_a_free_descriptor_goes_on(own_dir: Path) -> None:
    with node.ensure(own_dir) as handle:
        _, hard = resource.prlimit(handle.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(handle.pid, resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, hard))
        log = node.local_node_paths(own_dir).log
        wait_for(lambda: "Too many open files" in log.read_text(), TIMEOUT_S, "a pass without a descriptor")
        resource.prlimit(handle.pid, resource.RLIMIT_NOFILE, (hard, hard))
        client = AeronClient(handle.aeron_dir)
        client.subscription("aeron:ipc", 7).close()
        client.close()
        found = node.status(own_dir)
        assert (found.state, found.pid) == ("running", handle.pid)


@needs_root
def test_the_directory_of_another_user_is_refused(own_dir: Path, tmp_path: Path) -> None:
    own_dir.mkdir(mode=0o700)
    os.chown(own_dir, 12345, 12345)
    with pytest.raises(SetupError, match=r"belongs to user 12345, not to user 0.*aeronDir or AERON_SPARK_AERON_DIR"):
        node.ensure(own_dir)
    shutil.rmtree(own_dir)


@needs_root
def test_another_user_cannot_use_the_node(own_dir: Path, tmp_path: Path) -> None:
    home = Path("/tmp") / own_dir.name
    home.mkdir()
    os.chown(home, 12345, 12345)
    code = "import os, sys; os.setgroups([]); os.setgid(12345); os.setuid(12345)\n" + START_AND_STOP_NODE
    # Another user may not be able to read this source tree: import its packages before the change of the user.
    code = "import aeron_spark.node, getpass, json, subprocess, warnings\n" + code
    try:
        with node.ensure(own_dir) as handle:
            output = run_program(
                code, str(own_dir), AERON_SPARK_DATA_HOME=str(home / "data"), USER="other", LOGNAME="other"
            )
            assert output.startswith("SetupError "), output
            assert str(own_dir) in output
            assert "another user" in output or "belongs to user 0, not to user 12345" in output
            assert node.status(own_dir).pid == handle.pid
    finally:
        shutil.rmtree(home)


@needs_root
def test_a_chosen_directory_with_too_little_space_is_refused(small_file_system: Path) -> None:
    with pytest.raises(SetupError, match=r"media driver's directory .* has 6\d MiB free, and 240 MiB are needed\. Enl"):
        node.ensure(small_file_system / "aeron")
    with node.ensure(small_file_system / "aeron", term_length="1m", ipc_term_length="1m") as handle:
        assert handle.aeron_dir == str(small_file_system / "aeron")
    assert node.stop(small_file_system / "aeron")


@needs_root
def test_if_shared_memory_is_too_small_the_default_directory_is_on_disk_with_a_warning(
    small_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aeron_spark.node.paths.SHARED_MEMORY", small_file_system)
    monkeypatch.delenv("AERON_SPARK_AERON_DIR")
    with pytest.warns(RuntimeWarning, match=r"64 MiB free|6\d MiB free.*runs in .*/nodes/default/aeron instead"):
        handle = node.ensure()
    with handle:
        assert handle.aeron_dir == str(node.local_node_paths().disk_aeron_dir)
        assert (Path(handle.aeron_dir) / "cnc.dat").exists()
        with node.ensure() as again:  # a later user gets the same directory, without a warning
            assert again.aeron_dir == handle.aeron_dir
            assert again.warning == handle.warning != ""
        assert node.status().aeron_dir == handle.aeron_dir
    assert node.stop()
    assert not Path(handle.aeron_dir).exists()


@needs_root
def test_a_disk_with_too_little_space_for_the_archive_is_refused(own_dir: Path, small_file_system: Path) -> None:
    with pytest.raises(
        SetupError, match=r"archive's directory .* has 6\d MiB free, and 257 MiB.*AERON_SPARK_ARCHIVE_DIR"
    ):
        node.ensure(own_dir, archive_dir=small_file_system / "archive")
    assert not own_dir.exists()
    with node.ensure(own_dir, archive_dir=small_file_system / "archive", segment_length="16m") as handle:
        assert handle.archive_dir == str(small_file_system / "archive")
    assert node.stop(own_dir)


def test_a_data_folder_that_a_node_of_another_machine_uses_is_refused(own_dir: Path) -> None:
    with node.ensure(own_dir):
        paths = node.local_node_paths(own_dir)
        values = json.loads(paths.record.read_text())
        paths.record.write_text(json.dumps(values | {"host": "elsewhere"}))
        with pytest.raises(SetupError, match=r"used by a node on the host elsewhere.*AERON_SPARK_DATA_HOME"):
            node.ensure(own_dir)
        paths.record.write_text(json.dumps(values))
