"""Makes the archive of class data with which the JVMs of tests start in half the time (Java's class data sharing).

``python -m tests.class_data FILE`` writes the archive. A JVM ignores one of another Java, or of other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ARCHIVE: Final = ROOT / "jars" / "target" / "classes.jsa"
# Most JVMs of tests end before the second compiler pays.
QUICK: Final = "-XX:TieredStopAtLevel=1"
QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def java_options(archive: Path = ARCHIVE) -> tuple[str, ...]:
    """Return the arguments with which a JVM of a test starts quickly."""
    return (QUICK, f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.exists() else (QUICK,)


def make(archive: Path) -> None:
    """Run a node and a client of it in this process, and archive the classes that they have loaded."""
    from aeron_spark.aeron import jvm

    os.environ[jvm.OPTIONS_VARIABLE] = " ".join([f"-XX:ArchiveClassesAtExit={archive}", *QUIET])
    from aeron_spark.aeron.archive import archive_of
    from aeron_spark.aeron.client import client_of, close_client
    from aeron_spark.aeron.driver import EmbeddedDriver, start_driver_jvm
    from aeron_spark.aeron.publications import BatchPublication
    from aeron_spark.aeron.recording import ArchiveAddress
    from aeron_spark.node.settings import archive_context, driver_context, parse_settings
    from aeron_spark.node.state_files import CONTROL_CHANNEL, CONTROL_STREAM

    with tempfile.TemporaryDirectory() as folder:
        aeron_dir = f"{folder}/aeron"
        settings = parse_settings({"term_length": "64k", "ipc_term_length": "64k", "segment_length": "64k"}, 1)
        start_driver_jvm({})
        driver = EmbeddedDriver(
            driver_context(settings, aeron_dir, 1 << 20), archive_context(settings, f"{folder}/archive", 1)
        )
        address = ArchiveAddress("embedded", aeron_dir, CONTROL_CHANNEL, CONTROL_STREAM)
        archive_of(address).start_recording("aeron:ipc", 1)
        BatchPublication(client_of(aeron_dir), "aeron:ipc", 1).close()
        close_client(aeron_dir)
        driver.close()
        for name in helper_classes(jvm.classpath()):
            jvm.jclass(name)
    import jpype

    jpype.shutdownJVM()  # writes the archive


def helper_classes(jars: Sequence[str]) -> Iterator[str]:
    """Yield the names of the classes of this project's jar."""
    helper = next(jar for jar in jars if Path(jar).name.startswith("aeron-spark-helper"))
    with zipfile.ZipFile(helper) as files:
        for name in files.namelist():
            if name.endswith(".class"):
                yield name.removesuffix(".class").replace("/", ".")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
