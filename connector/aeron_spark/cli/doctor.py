"""``aeron-spark doctor``: what this machine has, what it lacks, and what to do about it."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click

from aeron_spark.aeron import jvm
from aeron_spark.cli.main import FAILED
from aeron_spark.cli.output import aeron_dir_option, json_option, print_json, print_table, size
from aeron_spark.errors import AeronSparkError
from aeron_spark.node import NodePaths, paths, paths_here, space, status
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.paths import SHARED_MEMORY
from aeron_spark.node.settings import RECEIVE_BUFFER, granted_buffer, machine_cores, parse_settings

OPEN_FILES: Final = 4096  # a log, an image and a segment each are a file
SEND_BUFFER: Final = 128 * 1024  # bytes: what Aeron asks the system for by default

Verdict = Literal["ok", "warning", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    subject: str
    verdict: Verdict
    what: str
    remedy: str = ""


@click.command()
@aeron_dir_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, aeron_dir: str | None, as_json: bool) -> None:
    """Check Java, jars, space, limits and leftovers; exits with 1 when something is broken."""
    findings = list(examine(paths_here(aeron_dir)))
    if as_json:
        for finding in findings:
            print_json(finding)
    else:
        rows = [(finding.subject, finding.verdict, finding.what, finding.remedy) for finding in findings]
        print_table("doctor", ("subject", "verdict", "what", "remedy"), rows, empty="")
    if any(finding.verdict == "broken" for finding in findings):
        ctx.exit(FAILED)


def examine(places: NodePaths) -> Iterator[Finding]:
    """Look at everything a node of ``places`` needs; changes nothing and starts nothing."""
    yield _java()
    yield _jars()
    yield from _space(places)
    yield _owner("aeron directory", places.aeron_dir)
    yield _owner("node folder", places.folder)
    yield _node(places)
    yield from _guard(places)
    yield from _stale()
    yield _udp()
    yield from _socket_buffers()
    yield _open_files()


def _java() -> Finding:
    try:
        library = jvm.find_library()
        jvm.check_version(library)
    except AeronSparkError as error:
        return _broken("java", error)
    version = jvm.java_version(library)
    return Finding("java", "ok", f"Java {version or 'of an unknown version'}, {library}")


def _jars() -> Finding:
    try:
        found = jvm.classpath()
    except AeronSparkError as error:
        return _broken("jars", error)
    return Finding("jars", "ok", ", ".join(Path(jar).name for jar in found))


def _space(places: NodePaths) -> Iterator[Finding]:
    running = status(places.aeron_dir)
    if running.runs:
        yield Finding("shared memory", "ok", f"{size(running.aeron_space.free)} left in {running.aeron_dir}")
        yield Finding("disk", "ok", f"{size(running.archive_space.free)} left in {running.archive_dir}")
        return
    settings = parse_settings({}, machine_cores())
    try:
        chosen, warning = space.choose_aeron_dir(places.aeron_dir, places.disk_aeron_dir, places.chosen, settings)
        verdict: Verdict = "warning" if warning else "ok"
        yield Finding("shared memory", verdict, warning or f"{size(space.space_of(chosen).free)} free for {chosen}")
    except AeronSparkError as error:
        yield _broken("shared memory", error)
    try:
        space.check_archive_space(places.archive_dir, settings)
        yield Finding("disk", "ok", f"{size(space.space_of(places.archive_dir).free)} free for {places.archive_dir}")
    except AeronSparkError as error:
        yield _broken("disk", error)


def _owner(subject: str, folder: Path) -> Finding:
    try:
        paths.refuse_others(folder)
    except AeronSparkError as error:
        return _broken(subject, error)
    return Finding(subject, "ok", f"{folder} is this user's, or can be")


def _node(places: NodePaths) -> Finding:
    found = status(places.aeron_dir)
    if found.state == "running" and (found.heartbeat_age or 0.0) > 10.0:
        return Finding(
            "node",
            "broken",
            f"the media driver in {found.aeron_dir} has no heartbeat, though process {found.pid} lives",
            "Stop it with 'aeron-spark node stop --force'.",
        )
    if found.state == "stale":
        return Finding("node", "warning", f"{found.aeron_dir} is a dead driver's", "The next start removes it.")
    return Finding("node", "ok", f"{found.state} in {found.aeron_dir}")


def _guard(places: NodePaths) -> Iterator[Finding]:
    """Whether the driver that runs guards a server's channels; one that a node starts from now on does."""
    found = status(places.aeron_dir)
    if not found.runs:
        return
    from aeron_spark.aeron import guard

    chosen: set[str] = set()
    if found.settings is not None:
        suppliers = {prop for _, name, prop in guard.SUPPLIERS if name.startswith("guard.")}
        chosen = suppliers & set(dict(found.settings.properties))
        if not chosen:
            yield Finding("guard", "ok", f"the node's own driver in {found.aeron_dir} has it")
            return
    try:
        seen = guard.has_guard(found.aeron_dir)
    except AeronSparkError as error:
        yield Finding(
            "guard",
            "warning",
            f"whether the driver in {found.aeron_dir} has it is not known: {error.what}",
            error.remedy,
        )
        return
    if seen:
        yield Finding("guard", "ok", f"the driver in {found.aeron_dir} has it")
        return
    from aeron_spark.server.program import GUARD_REMEDY, GUARD_RISK

    whose = "is somebody else's" if found.settings is None else f"was started with {', '.join(sorted(chosen))}"
    yield Finding(
        "guard",
        "warning",
        f"the driver in {found.aeron_dir} {whose}, and no guard has shown itself there, which it does once a secure "
        f"server listens; without one {GUARD_RISK}",
        GUARD_REMEDY,
    )


def _stale() -> Iterator[Finding]:
    """Drivers of this user in shared memory that are dead and hold their memory still."""
    if not SHARED_MEMORY.is_dir():
        return
    for cnc in sorted(SHARED_MEMORY.glob("*/cnc.dat")):
        found = driver_liveness(cnc.parent)
        if found is not None and not found.alive and cnc.stat().st_uid == os.geteuid():
            what = f"{cnc.parent} is left of the dead process {found.pid}"
            yield Finding("leftovers", "warning", what, f"If nobody needs its errors: rm -r {cnc.parent}")


def _udp() -> Finding:
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
        ):
            there.bind(("127.0.0.1", 0))
            there.settimeout(1.0)
            here.sendto(b"?", there.getsockname())
            there.recv(1)
    except OSError as error:
        return Finding(
            "ports", "broken", f"a datagram to this machine itself does not arrive ({error})", "Check the firewall."
        )
    return Finding("ports", "ok", "UDP ports can be bound, and datagrams to this machine arrive")


def _socket_buffers() -> Iterator[Finding]:
    for name, which, wanted, limit in (
        ("receive", socket.SO_RCVBUF, RECEIVE_BUFFER, "rmem_max"),
        ("send", socket.SO_SNDBUF, SEND_BUFFER, "wmem_max"),
    ):
        granted = granted_buffer(which, wanted)
        enough = granted == wanted
        remedy = "" if enough else f"sysctl -w net.core.{limit}=2097152"
        what = f"a socket's {name} buffer may have {size(granted)}, of {size(wanted)} that a node asks for"
        yield Finding("limits", "ok" if enough else "warning", what, remedy)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= OPEN_FILES
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    remedy = "" if enough else f"ulimit -n {min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536}"
    return Finding("limits", "ok" if enough else "warning", f"a process may open {shown} files", remedy)


def _broken(subject: str, error: AeronSparkError) -> Finding:
    return Finding(subject, "broken", error.what, error.remedy)
