"""Starts the only JVM of a process at its first use of Aeron: not at import, and not before a fork. Detaches threads.

JPype attaches a Python thread to the JVM at its first call of Java, and does not detach it. The JVM would keep some
kilobytes of each thread that has ended, and visit it at each safepoint. A process that often connects and closes would
grow. Therefore each entry to Java calls :func:`enter_java`.

A JVM does not survive a fork: only the thread that forks is in the child, and a call of Java can wait there without
end. PySpark forks its workers. Therefore this module stores the process id of the start and compares it at each use,
and clears JPype's reference to the JVM in a child. JPype is imported with the start, so that commands and programs
without Aeron do not wait for it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shlex
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import SetupError, UsageError
from aeron_spark.process import ProcessLock, run_exit_hooks


class _Attachment:
    """Detaches its thread when Python drops it, as the last work of that thread."""

    def __init__(self) -> None:
        self._pid: Final = os.getpid()
        self._thread: Final = threading.get_ident()

    def __del__(self) -> None:
        # After a fork, and at the end of the interpreter, another thread drops the attachments of all threads.
        if self._pid != os.getpid() or self._thread != threading.get_ident():
            return
        import jpype

        if jpype.isJVMStarted():
            jpype.JClass("java.lang.Thread").detach()


class _Attachments(threading.local):
    """The attachment of the thread that reads it. The main thread has none: it ends with the JVM."""

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.own: _Attachment | None = None if is_main else _Attachment()


_attachments: Final = _Attachments()


def enter_java() -> None:
    """Let this thread be detached from the JVM when it ends. Call it before a call of Java; it takes 0.1 µs."""
    _attachments.own  # noqa: B018  (the first read in a thread makes the attachment)


MINIMUM_JAVA: Final = 17

ARGUMENTS: Final = (
    # Agrona uses Unsafe, and CRC-32C over direct memory (the archive's checksums).
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xss512k",
    "-Dagrona.disable.bounds.checks=true",
)

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)  # how Spark ends its Python processes

OWN_SIGNALS: Final = "-Xrs"  # the JVM installs no signal handlers

SHORT_USE: Final = "-XX:TieredStopAtLevel=1"  # only the compiler that compiles quickly

# A small heap is enough: rows are in Arrow memory, and logs are mapped. Java collects old objects only when their part
# of the heap is full. Each closed connection leaves some kilobytes there, so that part begins at 16 MiB, not at 85.
HEAP: Final = ("-Xmn40m", "-Xms56m", "-Xmx128m")

# Java's memory outside the heap. A connection that reads a stream takes 1.4 MB of it. Java collects the garbage in
# this memory only at the limit.
DIRECT_MEMORY: Final = "-XX:MaxDirectMemorySize=256m"

# The environment variable with further arguments. Java's own JAVA_TOOL_OPTIONS writes a line to each program's errors.
OPTIONS_VARIABLE: Final = "AERON_SPARK_JAVA_OPTIONS"

_lock = ProcessLock()

_is_starting = False  # a JVM does not survive a fork during its start either

_started_in: int | None = None  # process id

_is_short_use = False  # whether the process will end after a few calls

_keeps_signals = False  # whether the JVM must leave all signals to the program

_classes: dict[str, Any] = {}  # cached, because a lookup takes longer than most calls

_calls_before_end: list[Callable[[], None]] = []


def start(*extra: str) -> None:
    """Start the JVM of this process if it does not run yet; only the first start uses the ``extra`` arguments.

    The environment variable ``AERON_SPARK_JAVA_OPTIONS`` has further arguments, which take precedence.

    The JVM leaves SIGINT to the process, and SIGTERM and SIGHUP if the program handles them. Else these two end the
    process as docs/decisions/0008 describes. Raises SetupError without Java 17 or newer and for arguments in the
    variable that Java refuses, and UsageError in a child that was forked from a process with a JVM.
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
            if _is_short_use:
                extra = (*extra, SHORT_USE)
            handled = [number for number in ENDING_SIGNALS if is_handled(number)]
            with preserved_handlers(handled), _starting():
                # With interrupt=False JPype would install its own SIGINT handler, which does not wake waiting threads.
                _start_java(library, jars, (*ARGUMENTS, *HEAP, DIRECT_MEMORY, *extra))
                _handle_signals([] if OWN_SIGNALS in extra else [one for one in ENDING_SIGNALS if one not in handled])
                _started_in = os.getpid()
        else:  # the user's program runs a JVM already: share it
            for jar in jars:
                jpype.addClassPath(jar)
        _started_in = os.getpid()
        # Runs before JPype ends the JVM: JPype interrupts threads, and closing a client then reports errors.
        atexit.register(_close, os.getpid())


def _start_java(library: str, jars: Sequence[str], arguments: Sequence[str]) -> None:
    import jpype

    text = os.environ.get(OPTIONS_VARIABLE, "")
    try:
        given = shlex.split(text)
        jpype.startJVM(library, *arguments, *given, classpath=list(jars), convertStrings=False, interrupt=True)
    except (ValueError, OSError, RuntimeError) as error:
        if not text:
            raise
        raise SetupError(
            f"Java did not start with the arguments {text!r} in {OPTIONS_VARIABLE}: {error}",
            remedy="Correct the variable, or remove it.",
        ) from error


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
    if _started_in is not None:
        import jpype.config

        jpype.config.onexit = False  # the child has no thread of the parent's JVM, and must not wait for its end
        if jpype.isJVMStarted():
            # JPype calls the JVM when an object of Java is dropped. A JVM that was at a safepoint during the fork stays
            # there in the child, and each call waits without end. This private function of JPype (the same in 1.6 and
            # 1.7) prevents all calls. False: do not end the JVM, which waits for its threads. True: clear the
            # reference.
            jpype._jpype.shutdown(False, True)


os.register_at_fork(after_in_child=_after_fork)


def keep_signals() -> None:
    """Let the JVM, which must not have been started yet, leave all signals to the program."""
    global _keeps_signals
    _keeps_signals = True


def expect_short_use() -> None:
    """Let the JVM, which must not have been started yet, start in less time and run long programs more slowly."""
    global _is_short_use
    _is_short_use = True


def call_before_end(call: Callable[[], None]) -> None:
    """Register ``call``, which runs after the Aeron clients are closed and before the JVM ends."""
    _calls_before_end.append(call)


def _handle_signals(numbers: Sequence[signal.Signals]) -> None:
    """Let these signals close the Aeron clients, then end the process."""
    if numbers:
        import jpype

        names = [number.name.removeprefix("SIG") for number in numbers]
        jpype.JClass("io.aeronspark.client.ClientShutdown").onSignals(*names)


def _close(pid: int) -> None:
    import jpype

    if pid == os.getpid() and jpype.isJVMStarted():
        run_exit_hooks()
        jpype.JClass("io.aeronspark.client.ClientShutdown").closeAll()
        for call in _calls_before_end:
            call()


def started() -> bool:
    """Whether this process runs a JVM that it has started itself, not its parent before a fork."""
    return _started_in == os.getpid()


def collect_garbage() -> None:
    """Have Java free the objects that are not used any more. Does nothing without a JVM in this process.

    The memory of a closed inbox is outside Java's heap, and Java frees it when it collects garbage, which a small heap
    seldom needs.
    """
    if started():
        jclass("java.lang.System").gc()


def jclass(name: str) -> Any:
    """Return the Java class ``name``; start the JVM if it does not run."""
    start()
    enter_java()
    found = _classes.get(name)
    if found is None:
        import jpype

        found = _classes[name] = jpype.JClass(name)
    return found


def find_library() -> str:
    """Return the path of libjvm. Raises SetupError without Java."""
    import jpype

    try:
        return str(jpype.getDefaultJVMPath())
    except (jpype.JVMNotFoundException, jpype.JVMNotSupportedException, OSError) as error:
        raise SetupError(
            "Aeron needs Java 17 or newer, and no Java was found",
            remedy="Install one (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME.",
        ) from error


def check_version(library: str) -> None:
    """Raise SetupError if the ``release`` file of the JVM at ``library`` has a version below Java 17."""
    version = java_version(library)
    if version is not None and version < MINIMUM_JAVA:
        raise SetupError(
            f"Aeron needs Java {MINIMUM_JAVA} or newer, and {library} is Java {version}",
            remedy="Set JAVA_HOME to a newer Java (Debian and Ubuntu: apt-get install openjdk-17-jre-headless).",
        )


def java_version(library: str) -> int | None:
    """Return the feature version of the JVM at ``library``, or None if its installation has no version."""
    for folder in Path(library).resolve().parents:
        release = folder / "release"
        if release.is_file():
            match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text())
            return int(match.group(1)) if match else None
    return None


FOLDER = Path(__file__).resolve().parent.parent / "jars"

# aeron-all contains Aeron's client, driver and archive; aeron-spark-helper is the Java code of this project.
REQUIRED = ("aeron-all", "aeron-spark-helper")


def classpath() -> list[str]:
    """Return the paths of the jars that this package needs. Raises SetupError with the name of a missing jar."""
    found = sorted(FOLDER.glob("*.jar"))
    for name in REQUIRED:
        if not any(jar.name.startswith(name) for jar in found):
            raise SetupError(
                f"the jar {name!r} is missing from {FOLDER}",
                remedy="Install the wheel, which contains the jars, or build them in a source tree with 'make jars'.",
            )
    return [str(jar) for jar in found]


SPARK_JAR: Final = FOLDER / "spark" / "aeron-spark-jvm.jar"


def spark_classpath() -> list[str]:
    """Return the paths of the jars of ``format("aeron-jvm")``. Raises SetupError with the name of a missing jar."""
    found = classpath()
    if not SPARK_JAR.exists():
        raise SetupError(
            f"the jar {SPARK_JAR.stem!r} is missing from {SPARK_JAR.parent}",
            remedy="Install the wheel, which contains the jars, or build them in a source tree with 'make jars'.",
        )
    return [*found, str(SPARK_JAR)]


CLUSTER_SCHEMA: Final = "cluster/aeron-cluster-codecs.xml"


def cluster_schema() -> str:
    """Return the SBE schema of Aeron Cluster, as XML, from Aeron's jar; needs no JVM. Raises SetupError without it."""
    jar = next(jar for jar in classpath() if Path(jar).name.startswith("aeron-all"))
    with zipfile.ZipFile(jar) as files:
        return files.read(CLUSTER_SCHEMA).decode("utf-8")


# More than the size of struct sigaction on any system. Its first member is the handler, on Linux and on macOS.
_SIGACTION_BYTES: Final = 1024

_HANDLER_BYTES: Final = ctypes.sizeof(ctypes.c_void_p)

_IGNORED: Final = int(signal.SIG_IGN)

_DEFAULT: Final = int(signal.SIG_DFL)

_sigaction: Any = ctypes.CDLL(None, use_errno=True).sigaction


@contextmanager
def preserved_handlers(numbers: Iterable[int]) -> Iterator[None]:
    """Restore the handlers of these signals, and of SIGINT, at the end of the block, in which a JVM starts."""
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
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # delivers a pending SIGINT


def is_handled(number: int) -> bool:
    """Whether the process has a handler for the signal: it neither ignores the signal nor uses the default action."""
    handler = int.from_bytes(_disposition(number).raw[:_HANDLER_BYTES], sys.byteorder)
    return handler not in (_IGNORED, _DEFAULT)


def _disposition(number: int) -> ctypes.Array[ctypes.c_char]:
    found = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _sigaction(number, None, found) != 0:
        raise OSError(ctypes.get_errno(), f"the disposition of signal {number} cannot be read")
    return found
