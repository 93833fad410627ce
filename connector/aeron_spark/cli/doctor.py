"""``aeron-spark doctor``: checks what a node needs on this machine, and names a remedy for each problem."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from aeron_spark.aeron import jvm
from aeron_spark.cli.main import FAILED
from aeron_spark.cli.output import aeron_dir_option, is_terminal, print_json, print_table, table_options
from aeron_spark.cli.spark_doctor import Diagnosis, Verdict, examine_spark
from aeron_spark.errors import AeronSparkError
from aeron_spark.node import NodePaths, local_node_paths, paths, status
from aeron_spark.node.paths import SHARED_MEMORY
from aeron_spark.node.settings import RECEIVE_BUFFER, granted_buffer, machine_cores, parse_settings, receive_window
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.texts import rounded_size
from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.transport.packet_sizes import device_mtus, may_be_fragmented, packet_bytes

OPEN_FILES: Final = 4096  # each publication, image and segment needs one
VERDICTS: Final[Mapping[str, Verdict]] = {"warning": "warning", "error": "broken"}  # of the findings about a server
SEND_BUFFER: Final = 128 * 1024  # bytes that Aeron requests for a socket by default


@click.command()
@aeron_dir_option
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also check a server's TOML file, as 'aeron-spark server check' does.",
)
@table_options
@click.pass_context
def doctor(ctx: click.Context, aeron_dir: str | None, config: Path | None, as_json: bool) -> None:
    """Check this machine when Aeron or Spark does not start or work.

    It looks at Java, jars, disk, memory, limits, firewall and stale drivers; and at what Spark would run: its Java by
    JAVA_HOME and PATH, PySpark's version, the Pythons of PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON and spark-defaults.conf,
    and the files of spark.jars.

    Prints a verdict per check: ok, warning or broken, with a remedy. It starts and changes nothing. The exit code is 1
    if a verdict is broken.
    """
    findings = [*examine(local_node_paths(aeron_dir)), *examine_spark()]
    if config is not None:
        from aeron_spark.cli.server_run import findings_of

        findings += [
            Diagnosis(f"server {one.subject}", VERDICTS.get(one.level, "ok"), one.what, one.remedy)
            for one in findings_of(None, config, {})
        ]
    if as_json:
        for finding in findings:
            print_json(finding)
    else:
        rows = [(finding.subject, finding.verdict, finding.what, finding.remedy) for finding in findings]
        print_table("doctor", ("subject", "verdict", "finding", "remedy"), rows, empty="", optional=("remedy",))
        if is_terminal():  # a table may cut sentences off
            for finding in findings:
                if finding.verdict != "ok":
                    click.echo(f"{finding.verdict}: {finding.subject}: {finding.what}. {finding.remedy}")
    if any(finding.verdict == "broken" for finding in findings):
        ctx.exit(FAILED)


def examine(node_paths: NodePaths) -> Iterator[Diagnosis]:
    """Yield the findings about everything that a node with these paths needs. Changes nothing and starts nothing."""
    yield _java()
    yield _jars()
    yield from _space(node_paths)
    yield _owner("aeron directory", node_paths.aeron_dir)
    yield _owner("node folder", node_paths.folder)
    yield _node(node_paths)
    yield from _guard(node_paths)
    yield from _stale()
    yield _udp()
    yield from _socket_buffers()
    yield from _packets()
    yield _open_files()


def _java() -> Diagnosis:
    try:
        library = jvm.find_library()
        jvm.check_version(library)
    except AeronSparkError as error:
        return _broken("java", error)
    version = jvm.java_version(library)
    return Diagnosis("java", "ok", f"Java {version or '(unknown version)'}, {library}")


def _jars() -> Diagnosis:
    try:
        found = jvm.classpath()
    except AeronSparkError as error:
        return _broken("jars", error)
    return Diagnosis("jars", "ok", ", ".join(Path(jar).name for jar in found))


def _space(node_paths: NodePaths) -> Iterator[Diagnosis]:
    running = status(node_paths.aeron_dir)
    if running.runs:
        yield Diagnosis("shared memory", "ok", f"{rounded_size(running.aeron_space.free)} free in {running.aeron_dir}")
        yield Diagnosis("disk", "ok", f"{rounded_size(running.archive_space.free)} free in {running.archive_dir}")
        return
    settings = parse_settings({}, machine_cores())
    try:
        chosen, warning = paths.choose_aeron_dir(
            node_paths.aeron_dir, node_paths.disk_aeron_dir, node_paths.chosen, settings
        )
        verdict: Verdict = "warning" if warning else "ok"
        yield Diagnosis(
            "shared memory", verdict, warning or f"{rounded_size(paths.space_of(chosen).free)} free for {chosen}"
        )
    except AeronSparkError as error:
        yield _broken("shared memory", error)
    try:
        warning = paths.check_archive_space(node_paths.archive_dir, settings)
        free = rounded_size(paths.space_of(node_paths.archive_dir).free)
        yield Diagnosis("disk", "warning" if warning else "ok", warning or f"{free} free for {node_paths.archive_dir}")
    except AeronSparkError as error:
        yield _broken("disk", error)


def _owner(subject: str, folder: Path) -> Diagnosis:
    try:
        paths.require_own(folder)
    except AeronSparkError as error:
        return _broken(subject, error)
    return Diagnosis(subject, "ok", f"{folder} belongs to this user or does not exist")


def _node(node_paths: NodePaths) -> Diagnosis:
    found = status(node_paths.aeron_dir)
    if found.state == "running" and (found.heartbeat_age or 0.0) > 10.0:
        return Diagnosis(
            "node",
            "broken",
            f"the media driver in {found.aeron_dir} has had no heartbeat for {found.heartbeat_age:.0f} s, but its "
            f"process {found.pid} exists",
            "Stop it with 'aeron-spark node stop --force'.",
        )
    if found.state == "stale":
        return Diagnosis(
            "node",
            "warning",
            f"{found.aeron_dir} has the files of a media driver that has ended",
            "Nothing to do: the next start removes them.",
        )
    return Diagnosis("node", "ok", f"{found.state} in {found.aeron_dir}")


def _guard(node_paths: NodePaths) -> Iterator[Diagnosis]:
    """Yield whether the running media driver has the guard of a server's channels. A node starts its driver with it."""
    found = status(node_paths.aeron_dir)
    if not found.runs:
        return
    from aeron_spark.aeron import guard

    replaced: set[str] = set()  # properties of the node's settings that replace the guard
    if found.settings is not None:
        suppliers = {prop for _, name, prop in guard.SUPPLIERS if name.startswith("guard.")}
        replaced = suppliers & set(dict(found.settings.properties))
        if not replaced:
            yield Diagnosis("guard", "ok", f"the node's own media driver in {found.aeron_dir} has it")
            return
    try:
        has_guard = guard.has_guard(found.aeron_dir)
    except AeronSparkError as error:
        yield Diagnosis(
            "guard",
            "warning",
            f"it is not known whether the media driver in {found.aeron_dir} has it: {error.what}",
            error.remedy,
        )
        return
    if has_guard:
        yield Diagnosis("guard", "ok", f"the media driver in {found.aeron_dir} has it")
        return
    from aeron_spark.server.server_node import GUARD_REMEDY, GUARD_RISK

    origin = (
        "was not started by aeron-spark"
        if found.settings is None
        else f"was started with {', '.join(sorted(replaced))}"
    )
    yield Diagnosis(
        "guard",
        "warning",
        f"the media driver in {found.aeron_dir} {origin} and shows no guard (a guard shows itself when a secure server "
        f"listens); without one {GUARD_RISK}",
        GUARD_REMEDY,
    )


def _stale() -> Iterator[Diagnosis]:
    """Yield the directories in shared memory that ended media drivers of this user still occupy."""
    if not SHARED_MEMORY.is_dir():
        return
    for cnc in sorted(SHARED_MEMORY.glob("*/cnc.dat")):
        found = driver_liveness(cnc.parent)
        if found is not None and not found.alive and cnc.stat().st_uid == os.geteuid():
            what = f"{cnc.parent} has the files of a media driver (process {found.pid}) that has ended"
            yield Diagnosis(
                "leftovers", "warning", what, f"To free the memory, and lose the driver's errors: rm -r {cnc.parent}"
            )


def _udp() -> Diagnosis:
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        ):
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(1.0)
            sender.sendto(b"?", receiver.getsockname())
            receiver.recv(1)
    except OSError as error:
        return Diagnosis(
            "ports",
            "broken",
            f"a UDP packet from this machine to 127.0.0.1 did not arrive ({error})",
            "Check the firewall.",
        )
    return Diagnosis("ports", "ok", "UDP ports can be bound, and packets to 127.0.0.1 arrive")


def _socket_buffers() -> Iterator[Diagnosis]:
    for name, option, wanted, limit in (
        ("receive", socket.SO_RCVBUF, RECEIVE_BUFFER, "rmem_max"),
        ("send", socket.SO_SNDBUF, SEND_BUFFER, "wmem_max"),
    ):
        granted = granted_buffer(option, wanted)
        is_enough = granted == wanted
        remedy = "" if is_enough else f"sysctl -w net.core.{limit}={wanted}"
        what = (
            f"a socket's {name} buffer gets {rounded_size(granted)} of the {rounded_size(wanted)} that a node requests"
        )
        if option == socket.SO_RCVBUF:
            what += f"; each sender may be {rounded_size(receive_window(granted))} ahead"
        yield Diagnosis("limits", "ok" if is_enough else "warning", what, remedy)


def _packets() -> Iterator[Diagnosis]:
    """Yield the packet size of rows on each network of this machine."""
    sizes = {name: packet_bytes(mtu, is_ipv6=False) for name, mtu in device_mtus().items()}
    shown = ", ".join(f"{size:,} bytes on {name}" for name, size in sorted(sizes.items()))
    yield Diagnosis(
        "packets", "ok", f"by mtu=auto the rows of streams take packets of up to {shown or MTU_BYTES}, if they arrive"
    )
    if may_be_fragmented():
        yield Diagnosis(
            "packets",
            "warning",
            f"routers may cut IPv4 packets of this machine into fragments, so rows take packets of {MTU_BYTES:,} bytes",
            "sysctl -w net.ipv4.ip_no_pmtu_disc=0",
        )


def _open_files() -> Diagnosis:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = soft == resource.RLIM_INFINITY or soft >= OPEN_FILES
    limit = "any number of" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    remedy = "" if is_enough else f"ulimit -n {min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536}"
    return Diagnosis("limits", "ok" if is_enough else "warning", f"a process may open {limit} files", remedy)


def _broken(subject: str, error: AeronSparkError) -> Diagnosis:
    return Diagnosis(subject, "broken", error.what, error.remedy)
