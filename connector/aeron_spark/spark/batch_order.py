"""Checks that a micro-batch follows the last one that a query's servers have. Pure.

Spark does not store a sink's progress, so the servers do. With each micro-batch a server gets a token: the run of the
query, and the last micro-batch of each of its servers. The next micro-batch compares the token with the current state
of the servers. A server that was restored from an older copy has an earlier micro-batch than in the token.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.strict_json import parse_json

NONE: Final = -1  # for a server without a micro-batch of the query
TAG_CHARACTERS: Final = 6  # 36 bits: the tags of a query's servers differ


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch of a query on a server (-1 for none), with its token.

    ``run``: the run of the query that wrote it. ``servers``: the last micro-batch of each server of the query, by
    ``tag_of`` its name, after that one; None if a release without tokens wrote it.
    """

    last: int
    run: str = ""
    servers: Mapping[str, int] | None = None

    @classmethod
    def parse(cls, last: int, token: str) -> Progress:
        """Parse a token. Raises DataFormatError for a token that no sink wrote."""
        if last == NONE or not token:
            return cls(last)
        try:
            found = parse_json(token)
            return cls(last, str(found["run"]), _parse_servers(last, found["servers"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFormatError(
                f"the token of micro-batch {last} was not written by a sink: {error!r}",
                remedy="Give the query a separate writerId: another program writes with this one.",
            ) from None


def token_of(batch: int, server: str, run: str, progress: Mapping[str, Progress]) -> str:
    """Return the token of a micro-batch for ``server``; ``progress`` is the current state of all servers.

    It has each server's tag, followed by how many micro-batches its last one is before this one; nothing for a server
    without any. So the servers of a query with a hundred of them fit into the 1 KiB that a server stores.
    """
    servers = {name: one.last for name, one in progress.items()} | {server: batch}
    listed = ",".join(f"{tag_of(name)}{'' if last == NONE else batch - last}" for name, last in servers.items())
    return json.dumps({"run": run, "servers": listed}, separators=(",", ":"))


def tag_of(server: str) -> str:
    """Return the short form of a server's name in tokens."""
    return base64.urlsafe_b64encode(hashlib.sha256(server.encode()).digest())[:TAG_CHARACTERS].decode()


def _parse_servers(batch: int, listed: str) -> dict[str, int]:
    entries = [(one[:TAG_CHARACTERS], one[TAG_CHARACTERS:]) for one in listed.split(",")]
    if not all(before.isascii() and (before.isdecimal() or not before) for _, before in entries):
        raise ValueError(f"{listed!r} are not servers with numbers")
    return {tag: batch - int(before) if before else NONE for tag, before in entries}


def _tags(servers: Iterable[str]) -> frozenset[str]:
    return frozenset(map(tag_of, servers))


def check_follows(
    batch: int, run: str, progress: Mapping[str, Progress], *, query: str, stream: str, accept_gap: bool
) -> None:
    """Raise RefusedError with reason "diverged" if the servers do not have all micro-batches before ``batch``.

    ``progress`` is by server; no server has ``batch`` or a later one. A new server has none. A removed server may have
    the last ones. ``accept_gap`` accepts the first micro-batch of a run in any case. A query of a release without
    tokens is accepted once.
    """
    latest = max(progress.values(), key=lambda one: one.last)
    if accept_gap and latest.run != run:
        return
    if latest.last == NONE:
        if batch:
            raise _refused(
                f"micro-batch {batch} of query {query} follows micro-batch {batch - 1}, but {stream} has none"
            )
        return
    if latest.servers is None:
        return
    removed = len(latest.servers.keys() - _tags(progress))
    if latest.last + 1 + removed < batch:
        raise _refused(
            f"micro-batch {batch} of query {query} does not follow {latest.last}, the last of this query in {stream}"
        )
    for name, one in progress.items():
        had = latest.servers.get(tag_of(name), NONE)
        if one.last < had:
            raise _refused(
                f"micro-batch {batch} of query {query} is not written to {stream}: the server {name} had micro-batch "
                f"{had} of this query, and now has {'none' if one.last == NONE else f'{one.last} as the last'}"
            )


def _refused(text: str) -> RefusedError:
    return RefusedError(
        text,
        remedy="If a server was restored from an older copy, restore the query's checkpoint of the same time; or set "
        "acceptGap=true for one start, which loses the rows in between.",
        reason=DIVERGED,
    )
