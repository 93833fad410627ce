"""Checks a configuration and this machine before a server starts, and computes the memory that it needs.

The constants are measured: docs/limits.md has the measurements and their conditions.
"""

from __future__ import annotations

import difflib
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from aeron_spark import node
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.bans import StoredBans
from aeron_spark.keys.key_files import read_secret, read_shared_secret
from aeron_spark.keys.stores import load_identity
from aeron_spark.node.locks import current_owner_text, is_locked
from aeron_spark.node.paths import file_bytes, space_of
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.grants import Grant
from aeron_spark.server.clients import clients_of, is_from_environment, key_paths_of
from aeron_spark.server.http import parse_http_address, require_free, require_prometheus_client
from aeron_spark.server.server_node import address_lock_path, bind_error
from aeron_spark.server.watch import DiskReserve
from aeron_spark.streams.definition import DEFAULT_SEGMENT_BYTES, Definition, read_definition
from aeron_spark.streams.journal import JOURNAL_FILE, read_entries
from aeron_spark.streams.journal_records import decode_record
from aeron_spark.streams.store import LOCK, missing_streams

KIB: Final = 1 << 10
MIB: Final = 1 << 20
LOG_TERMS: Final = 3  # terms of a publication's or an image's log
DIRECTIONS: Final = 2  # of a connection or a bulk link


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum: ``count`` things of ``bytes_each``."""

    name: str
    count: int
    bytes_each: int

    @property
    def bytes(self) -> int:
        """The bytes of all of them."""
        return self.count * self.bytes_each


@dataclass(frozen=True, slots=True)
class Load:
    """The numbers on which the sums depend, and the sizes of terms and the memory limit in bytes."""

    connections: int
    bulk_links: int
    partitions: int
    written_partitions: int
    memory_limit: int
    link_term_bytes: int
    stream_term_bytes: int


def server_terms(load: Load) -> tuple[Term, ...]:
    """Return the terms of the resident memory of the server's process."""
    return (
        Term("base", 1, 250 * MIB),
        Term("connections", load.connections, MIB // 10),
        Term("partitions", load.partitions, 256 * KIB),
        Term("memoryLimit", 1, load.memory_limit),
    )


def node_terms(load: Load) -> tuple[Term, ...]:
    """Return the terms of the resident memory of the node's process, without shared memory."""
    return (
        Term("base", 1, 350 * MIB),
        Term("connections", load.connections, 4 * MIB // 10),
        Term("written partitions", load.written_partitions, 256 * KIB),
    )


def shared_memory_terms(load: Load) -> tuple[Term, ...]:
    """Return the terms of the media driver's files, if every link has sent as much as its logs hold."""
    return (
        Term("driver", 1, 48 * MIB),
        Term("reserve", 1, 256 * MIB),  # the server opens no link for which less would remain
        Term("connections and bulk links", load.connections + load.bulk_links,
             LOG_TERMS * DIRECTIONS * load.link_term_bytes),
        Term("written partitions", load.written_partitions, LOG_TERMS * load.stream_term_bytes),
    )  # fmt: skip


def total(terms: tuple[Term, ...]) -> int:
    """Return the sum of the terms in bytes."""
    return sum(term.bytes for term in terms)


def describe(terms: tuple[Term, ...]) -> str:
    """Return the sum and its terms as a text, such as ``350 MiB = base 250 MiB + connections 1000 x 0.1 MiB``."""
    parts = [
        f"{one.name} {one.bytes_each / MIB:.4g} MiB"
        if one.count == 1
        else f"{one.name} {one.count} x {one.bytes_each / MIB:.2g} MiB"
        for one in terms
    ]
    return f"{total(terms) / MIB:.0f} MiB = {' + '.join(parts)}"


Level = Literal["ok", "warning", "error"]
FILES_PER_CONNECTION: Final = 4
FILES_PER_PARTITION: Final = 5
BASE_FILES: Final = 200
MEMORY_INFO: Final = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. An error means that a server with this configuration does not start or serve."""

    level: Level
    subject: str
    what: str
    remedy: str = ""


class Preflight:
    """The checks of one configuration."""

    def __init__(self, options: ServerOptions) -> None:
        self._options: Final = options
        self._node: Final = node.status(options.aeron_dir)
        archive = Path(self._node.archive_dir or node.local_node_paths(options.aeron_dir).archive_dir)
        self._archive: Final = archive
        self._store: Final = Path(options.streams_dir or f"{archive}.streams")
        self._definitions: Final[list[Definition]] = []
        self._grants: list[Grant] = []

    def findings(self) -> Iterator[Finding]:
        """Execute the checks, one after the other."""
        checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
            ("clients", self._clients), ("identity", self._identity), ("addresses", self._addresses),
            ("http", self._http), ("node", self._sync_level),
            ("folders", self._folders), ("bans", self._bans), ("streams", self._streams),
            ("clients", self._granted_streams), ("memory", self._memory),
            ("shared memory", self._shared_memory), ("open files", self._open_files), ("disk", self._disk),
        )  # fmt: skip
        for subject, check in checks:
            try:
                yield from check()
            except AeronSparkError as error:
                yield Finding("error", subject, error.what, error.remedy)
            except OSError as error:
                yield Finding(
                    "error", subject, f"{error.filename or ''}: {error.strerror}", "Check its owner and mode."
                )

    def _clients(self) -> Iterator[Finding]:
        path = key_paths_of(self._options).authorized_keys
        clients = clients_of(self._options, path)
        self._grants = [] if clients is None else list(clients.grants().values())
        if clients is None:
            yield Finding(
                "warning", "clients", "every key has every grant (allowAnyKey)", "Authorise keys in a clients file."
            )
        elif not self._grants:
            yield Finding(
                "warning",
                "clients",
                f"{path} has no key, so that no client is admitted",
                "Add the public key of each client ('aeron-spark keys show' on its machine).",
            )
        else:
            yield Finding("ok", "clients", f"{path} can be used")

    def _granted_streams(self) -> Iterator[Finding]:
        """Yield a finding for each name in a grant that no stream has, and that the key may not create."""
        names = [one.name for one in self._definitions]
        for grant in self._grants:
            named = {pattern for one in grant.streams for pattern in one.patterns if not set("*?[") & set(pattern)}
            for name in sorted(named.difference(names)):
                if grant.may_use(name, "create"):
                    continue
                now = next((one.name for one in self._definitions if one.is_former_name(name)), None)
                near = difflib.get_close_matches(name, names, n=1)
                remedy = (
                    f"Did you mean {near[0]!r}? Correct the name, or create the stream."
                    if near
                    else ("Correct the name, or create the stream.")
                )
                yield Finding(
                    "warning",
                    "clients",
                    f"{grant.name} has a grant for stream {name!r}, which "
                    + (f"was renamed to {now!r}" if now else "does not exist"),
                    f"Write {now!r} in the clients file." if now else remedy,
                )

    def _identity(self) -> Iterator[Finding]:
        if self._options.shared_secret_file is not None:
            read_shared_secret(self._options.shared_secret_file)
        if is_from_environment(self._options):
            load_identity(self._options.identity or "")
            yield Finding("ok", "identity", f"{self._options.identity} has a key")
            return
        path = key_paths_of(self._options).identity
        if read_secret(path) is None:
            yield Finding("ok", "identity", f"{path} does not exist; the server makes it at its start")
            yield from self._writable("identity", path.parent)
        else:
            yield Finding("ok", "identity", f"only this user can read {path}")

    def _addresses(self) -> Iterator[Finding]:
        for address in self._options.addresses:
            name = "ipc:" if address.media == "ipc" else f"{address.host}:{address.data_port}"
            lock = address_lock_path(self._node.aeron_dir, address)
            if is_locked(lock):
                yield Finding(
                    "warning",
                    "addresses",
                    f"server process {current_owner_text(lock)} serves {name} now",
                    "Stop that server before the start of another one.",
                )
                continue
            ports = (address.data_port, address.control_port) if address.media == "udp" else ()
            errors = [(port, error) for port in ports if (error := bind_error(address.host, port)) is not None]
            for port, error in errors:
                what = f"cannot listen on {address.host}:{port}: {error.strerror}"
                yield Finding("error", "addresses", what, "Choose another address, or stop the program that has it.")
            if not errors:
                yield Finding("ok", "addresses", f"{name} is free")
        yield from self._optional_addresses()

    def _optional_addresses(self) -> Iterator[Finding]:
        for address in self._options.optional_addresses:
            lock = address_lock_path(self._node.aeron_dir, address)
            if is_locked(lock):
                what = f"server process {current_owner_text(lock)} serves the shared memory of the media driver now"
                yield Finding("ok", "addresses", f"{what}; a server beside it listens over UDP only")
            else:
                yield Finding("ok", "addresses", "the shared memory of the media driver is free")

    def _http(self) -> Iterator[Finding]:
        if self._options.http is None:
            return
        require_prometheus_client()
        address = parse_http_address(self._options.http)
        if self._is_store_in_use:
            return  # by a server that may have this port, too; the check of the folders names it
        require_free(address)
        yield Finding("ok", "http", f"{address} is free")

    def _sync_level(self) -> Iterator[Finding]:
        required, running = self._options.sync_level, self._node
        if required is None or running.state not in ("running", "foreign"):
            return
        if running.settings is not None and running.settings.sync_level == required:
            yield Finding("ok", "node", f"the node in {running.aeron_dir} runs with syncLevel {required}")
            return
        has = "an unknown one" if running.settings is None else running.settings.sync_level
        # a server that uses the store may have started the node, which then ends with it
        yield Finding(
            "warning" if self._is_store_in_use else "error",
            "node",
            f"option 'syncLevel' is {required}, and the node in {running.aeron_dir} runs with {has}",
            "Stop the node before the start of the server ('aeron-spark node stop'), or change the option.",
        )

    def _bans(self) -> Iterator[Finding]:
        bans = StoredBans()
        if self._store.is_dir():
            bans.open(self._store)
        yield Finding("ok", "bans", f"{len(bans.all())} bans apply")

    def _folders(self) -> Iterator[Finding]:
        for folder in (self._store, self._archive, Path(self._node.folder), Path(self._node.aeron_dir)):
            yield from self._writable("folders", folder)
        if self._is_store_in_use:
            owner = current_owner_text(self._store / LOCK)
            yield Finding(
                "warning",
                "folders",
                f"server process {owner} uses {self._store} now",
                "Stop that server before the start of another one.",
            )

    @property
    def _is_store_in_use(self) -> bool:
        return self._store.is_dir() and is_locked(self._store / LOCK)

    def _streams(self) -> Iterator[Finding]:
        folders = sorted(self._store.iterdir()) if self._store.is_dir() else []
        for folder in folders:
            if not folder.is_dir() or folder.name.startswith("."):
                continue
            try:
                self._definitions.append(read_definition(folder))
                journal = folder / JOURNAL_FILE
                for payload in read_entries(journal.read_bytes(), journal)[0]:
                    decode_record(payload)
            except AeronSparkError as error:  # the other streams serve
                yield Finding("warning", "streams", f"stream {folder.name!r}: {error.what}", error.remedy)
            except FileNotFoundError as error:
                what = f"stream {folder.name!r}: {error.filename} is missing"
                yield Finding("warning", "streams", what, "Restore it from a backup.")
        missing = missing_streams(
            self._store, str(self._archive), self._definitions, [folder.name for folder in folders]
        )
        for name, (_, gone) in missing.items():
            what = f"stream {name!r}: {gone.what}; the server will not be ready"
            yield Finding("warning", "streams", what, gone.remedy)
        yield Finding("ok", "streams", f"{len(self._definitions)} streams can be read by this release")

    def _memory(self) -> Iterator[Finding]:
        load, available = self._load(), _available_memory()
        server, of_node = server_terms(load), node_terms(load)
        required = total(server) + total(of_node)
        text = f"at most: server {describe(server)}; node {describe(of_node)}"
        if available is not None and required > available:
            yield Finding(
                "warning",
                "memory",
                f"{text}; available are {available / MIB:.0f} MiB",
                "Add memory, or lower maxConnections or memoryLimit.",
            )
        else:
            yield Finding("ok", "memory", text)

    def _shared_memory(self) -> Iterator[Finding]:
        folder, terms = Path(self._node.aeron_dir), shared_memory_terms(self._load())
        text = f"at most {describe(terms)} in {folder}"
        available = space_of(folder).free + file_bytes(folder)  # the files are of this node, or of a dead one
        if total(terms) > available:
            yield Finding(
                "warning",
                "shared memory",
                f"{text}; available are {available / MIB:.0f} MiB",
                "Enlarge the file system, or lower maxConnections or termLength.",
            )
        else:
            yield Finding("ok", "shared memory", text)

    def _open_files(self) -> Iterator[Finding]:
        load = self._load()
        required = BASE_FILES + FILES_PER_CONNECTION * load.connections + FILES_PER_PARTITION * load.partitions
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < required:
            yield Finding(
                "warning",
                "open files",
                f"a process may open {soft} files, and {required} may be needed",
                f"Set ulimit -n {required}, or LimitNOFILE={required} in the unit.",
            )
        else:
            yield Finding("ok", "open files", f"a process may open enough files; {required} may be needed")

    def _disk(self) -> Iterator[Finding]:
        folders = {"store": self._store, "archive": self._archive}
        problem = DiskReserve(lambda: folders, lambda: self._options.disk_reserve).problem()
        if problem:
            yield Finding("warning", "disk", f"{problem}: the server will not be ready", "Free some space.")
        else:
            yield Finding("ok", "disk", "the disks have more free bytes than diskReserve")

    def _load(self) -> Load:
        partitions = sum(one.partitions for one in self._definitions)
        return Load(
            connections=self._options.max_connections,
            bulk_links=partitions,
            partitions=partitions,
            written_partitions=partitions,
            memory_limit=self._options.memory_limit,
            link_term_bytes=self._options.term_length,
            stream_term_bytes=max((one.term_bytes for one in self._definitions), default=DEFAULT_SEGMENT_BYTES),
        )

    @staticmethod
    def _writable(subject: str, folder: Path) -> Iterator[Finding]:
        existing = folder
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir():
            yield Finding("error", subject, f"{existing} is not a folder", "Name another folder.")
        elif not os.access(existing, os.W_OK | os.X_OK):
            yield Finding(
                "error", subject, f"{folder} cannot be written by this user", f"Check the mode of {existing}."
            )
        else:
            yield Finding("ok", subject, f"{folder} can be written")


def _available_memory() -> int | None:
    """Return the bytes that programs can use without swapping; None if the system does not say."""
    try:
        lines = MEMORY_INFO.read_text().splitlines()
    except OSError:
        return None
    values = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(values[0]) * 1024 if values else None
