"""How much memory a server, its node and /dev/shm need at most, as sums of terms. Pure.

The constants are measured: docs/operations.md has the measurements and their conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
        f"{one.name} {one.bytes_each / MIB:.4g} MiB" if one.count == 1
        else f"{one.name} {one.count} x {one.bytes_each / MIB:.2g} MiB"
        for one in terms
    ]  # fmt: skip
    return f"{total(terms) / MIB:.0f} MiB = {' + '.join(parts)}"
