"""The one Java virtual machine of a process: started by the first use of Aeron, never at import, never before a fork.

A JVM does not survive a fork: the child is told it runs, and hangs on its first use. PySpark forks its workers,
so the process that started the JVM is remembered and every later use compares. JPype is imported by the start, so that
commands and programs that never need a JVM do not wait for it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import SetupError, UsageError
from aeron_spark.process_cache import ProcessLock

MINIMUM_JAVA: Final = 17

ARGUMENTS: Final = (
    # Agrona reaches for Unsafe, and for CRC-32C over direct memory (the archive's checksums).
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xss512k",
    "-Dagrona.disable.bounds.checks=true",
)

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)  # how Spark ends its Python processes

OWN_SIGNALS: Final = "-Xrs"  # the JVM leaves signals to the process, which closes what it opened by itself

HEAP: Final = "-Xmx128m"  # nothing big lives on the heap: rows are in Arrow's memory, logs are mapped

_lock = ProcessLock()

_is_starting = False  # in the middle of its start a JVM survives a fork as little as later

_started_in: int | None = None

_keeps_signals = False  # whether this process wants every signal for itself

_classes: dict[str, Any] = {}  # looking one up takes longer than most calls of it

_before_its_end: list[Callable[[], None]] = []


def start(*extra: str) -> None:
    """Start the JVM of this process unless it runs; ``extra`` arguments count for the first start only.

    The JVM leaves SIGINT to the process, and SIGTERM and SIGHUP where the program handles them; else these two end the
    process as docs/decisions/0008 says. Raises SetupError without Java 17 or newer, UsageError in a child forked from a
    process whose JVM ran.
    """
    global _started_in
    if _started_in == os.getpid():
        return
    import jpype

    with _lock:
        if _started_in == os.getpid():
            return
        if _started_in is not None:
            raise UsageError(
                f"the JVM was started in process {_started_in}, before process {os.getpid()} was forked from it",
                remedy="Use Aeron only after the fork, or start children with the 'spawn' method.",
            )
        jars = classpath()
        library = None if jpype.isJVMStarted() else find_library()
        if library is not None:
            check_version(library)
            if _keeps_signals:
                extra = (*extra, OWN_SIGNALS)
            handled = [number for number in ENDING_SIGNALS if is_handled(number)]
            with left_to_the_process(handled), _starting():
                # with interrupt=False JPype would have its own handler of SIGINT, which wakes no thread that waits
                jpype.startJVM(library, *ARGUMENTS, HEAP, *extra, classpath=jars, convertStrings=False, interrupt=True)
                _take_signals([] if OWN_SIGNALS in extra else [one for one in ENDING_SIGNALS if one not in handled])
                _started_in = os.getpid()
        else:  # the user's own program runs a JVM already: share it
            for jar in jars:
                jpype.addClassPath(jar)
        _started_in = os.getpid()
        # Before JPype ends the JVM: it interrupts threads, and a client that is closed then complains.
        atexit.register(_close, os.getpid())


@contextmanager
def _starting() -> Iterator[None]:
    global _is_starting
    _is_starting = True
    try:
        yield
    finally:
        _is_starting = False


def _after_fork() -> None:
    global _started_in, _is_starting
    if _is_starting:  # by another thread of the parent
        _started_in, _is_starting = os.getppid(), False


os.register_at_fork(after_in_child=_after_fork)


def keep_signals() -> None:
    """Have the JVM that this process has yet to start leave every signal to the program."""
    global _keeps_signals
    _keeps_signals = True


def before_its_end(call: Callable[[], None]) -> None:
    """Have ``call()`` made before the JVM of this process ends, after the clients of Aeron are closed."""
    _before_its_end.append(call)


def _take_signals(numbers: Sequence[signal.Signals]) -> None:
    """Have these signals take leave of the drivers, and end the process."""
    if numbers:
        import jpype

        names = [number.name.removeprefix("SIG") for number in numbers]
        jpype.JClass("io.aeronspark.client.ClientShutdown").onSignals(*names)


def _close(pid: int) -> None:
    import jpype

    if pid == os.getpid() and jpype.isJVMStarted():
        jpype.JClass("io.aeronspark.client.ClientShutdown").closeAll()
        for call in _before_its_end:
            call()


def started() -> bool:
    """Whether this process, and not a parent it was forked from, runs a JVM."""
    return _started_in == os.getpid()


def jclass(name: str) -> Any:
    """Return the Java class ``name``, starting the JVM first where needed."""
    start()
    found = _classes.get(name)
    if found is None:
        import jpype

        found = _classes[name] = jpype.JClass(name)
    return found


def find_library() -> str:
    """Return the path of libjvm, or raise SetupError with the remedy."""
    import jpype

    try:
        return str(jpype.getDefaultJVMPath())
    except (jpype.JVMNotFoundException, jpype.JVMNotSupportedException, OSError) as error:
        raise SetupError(
            "Aeron needs Java 17 or newer, and no Java was found",
            remedy="Install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME.",
        ) from error


def check_version(library: str) -> None:
    """Raise SetupError where the JVM at ``library`` says in its ``release`` file that it is older than Java 17."""
    version = java_version(library)
    if version is not None and version < MINIMUM_JAVA:
        raise SetupError(
            f"Aeron needs Java {MINIMUM_JAVA} or newer, and {library} is Java {version}",
            remedy="Set JAVA_HOME to a newer Java (Debian and Ubuntu: apt-get install openjdk-17-jre-headless).",
        )


def java_version(library: str) -> int | None:
    """Return the feature version of the JVM at ``library``, or None where its installation does not say."""
    for folder in Path(library).resolve().parents:
        release = folder / "release"
        if release.is_file():
            match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text())
            return int(match.group(1)) if match else None
    return None


FOLDER = Path(__file__).resolve().parent.parent / "jars"

# The bulk helper is ours; aeron-all is Aeron's client, driver and archive in one.
REQUIRED = ("aeron-all", "aeron-spark-helper")


def classpath() -> list[str]:
    """Return the jars this package needs, or raise SetupError naming the one that is missing."""
    found = sorted(FOLDER.glob("*.jar"))
    for name in REQUIRED:
        if not any(jar.name.startswith(name) for jar in found):
            raise SetupError(
                f"the jar {name!r} is missing from {FOLDER}",
                remedy="Install the wheel, which carries its jars, or build them in a source tree with 'make jars'.",
            )
    return [str(jar) for jar in found]


# Longer than struct sigaction of any system; its first member is the handler, on Linux and on macOS.
_SIGACTION_BYTES: Final = 1024

_HANDLER_BYTES: Final = ctypes.sizeof(ctypes.c_void_p)

_IGNORED: Final = int(signal.SIG_IGN)

_DEFAULT: Final = int(signal.SIG_DFL)

_sigaction: Any = ctypes.CDLL(None, use_errno=True).sigaction


@contextmanager
def left_to_the_process(numbers: Iterable[int]) -> Iterator[None]:
    """Give these signals, and SIGINT, back to their handlers at the end of the block, in which a JVM starts."""
    before = {number: _disposition(number) for number in {signal.SIGINT, *numbers}}
    ignored = ctypes.create_string_buffer(_IGNORED.to_bytes(_HANDLER_BYTES, sys.byteorder), _SIGACTION_BYTES)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        _sigaction(signal.SIGINT, ignored, None)
        try:
            yield
        finally:
            for number, disposition in before.items():
                _sigaction(number, disposition, None)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # a SIGINT that waits is delivered here


def is_handled(number: int) -> bool:
    """Whether the process has a handler for the signal: neither ignores the signal nor leaves it to the system."""
    handler = int.from_bytes(_disposition(number).raw[:_HANDLER_BYTES], sys.byteorder)
    return handler not in (_IGNORED, _DEFAULT)


def _disposition(number: int) -> ctypes.Array[ctypes.c_char]:
    found = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _sigaction(number, None, found) != 0:
        raise OSError(ctypes.get_errno(), f"the disposition of signal {number} cannot be read")
    return found
