"""Archives that this package did not start: a plain ArchivingMediaDriver, and one that requires credentials."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import ConnectError
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S
from tests.ports import free_port
from tests.programs import start_foreign_driver, start_python

# An archive that accepts clients with the secret; the program ends at the end of its input.
GUARDED: Final = """
import sys
from pathlib import Path
import jpype
from aeron_spark.aeron.jvm import jclass

aeron_dir, archive_dir, control, secret = sys.argv[1:]
builder = jclass("io.aeron.security.SimpleAuthenticator$Builder")()
encoded = jpype.JArray(jpype.JByte)(secret.encode())
table = builder.principal(encoded, encoded).newInstance()
supplier = jpype.JProxy("io.aeron.security.AuthenticatorSupplier", dict={"get": lambda: table})
driver = jclass("io.aeron.driver.MediaDriver$Context")()
driver.aeronDirectoryName(aeron_dir).threadingMode(jclass("io.aeron.driver.ThreadingMode").SHARED)
driver.dirDeleteOnShutdown(True).termBufferSparseFile(True)
archive = jclass("io.aeron.archive.Archive$Context")()
archive.aeronDirectoryName(aeron_dir).archiveDirectoryName(archive_dir)
archive.threadingMode(jclass("io.aeron.archive.ArchiveThreadingMode").SHARED)
archive.controlChannel(f"aeron:udp?endpoint={control}").replicationChannel("aeron:udp?endpoint=localhost:0")
archive.authenticatorSupplier(supplier)
running = jclass("io.aeron.archive.ArchivingMediaDriver").launch(driver, archive)
print("ready", flush=True)
sys.stdin.readline()
running.close()
"""


@contextmanager
def foreign_archive(aeron_dir: Path, archive_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Aeron's own ArchivingMediaDriver, as users without this package do."""
    main = "io.aeron.archive.ArchivingMediaDriver"
    process = start_foreign_driver(
        aeron_dir, main, *archive_properties(archive_dir), "-Daeron.term.buffer.sparse.file=true"
    )
    try:
        wait_for(lambda: has_archive(aeron_dir, process), TIMEOUT_S, f"an archive in {aeron_dir}")
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        wait_for(lambda: not aeron_dir.exists(), TIMEOUT_S, f"{aeron_dir} to be removed by its driver")


def archive_properties(archive_dir: Path) -> tuple[str, ...]:
    """Return the Java properties of an archive on a free port."""
    return (
        f"-Daeron.archive.dir={archive_dir}",
        f"-Daeron.archive.control.channel=aeron:udp?endpoint=localhost:{free_port()}",
        "-Daeron.archive.replication.channel=aeron:udp?endpoint=localhost:0",
        "-Daeron.archive.threading.mode=SHARED",
    )


def has_archive(aeron_dir: Path, process: subprocess.Popen[bytes]) -> bool:
    """Return whether the archive that ``process`` runs accepts sessions on the driver in ``aeron_dir``."""
    assert process.poll() is None
    if driver_liveness(aeron_dir) is None:
        return False
    try:
        archive_of(ArchiveAddress("foreign", str(aeron_dir), "aeron:ipc?term-length=64k"))
    except ConnectError:  # the driver starts before the archive
        return False
    return True


@contextmanager
def guarded_archive(aeron_dir: Path, archive_dir: Path, secret: str) -> Iterator[str]:
    """Run an archive that requires ``secret``; yield its control endpoint."""
    control = f"localhost:{free_port()}"
    process = start_python(GUARDED, str(aeron_dir), str(archive_dir), control, secret)
    try:
        line = process.stdout.readline()
        assert line == "ready\n", line + process.stdout.read()
        yield control
    finally:
        process.communicate(input="\n", timeout=TIMEOUT_S)
