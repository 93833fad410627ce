"""Which micro-batch of a query a server may take next: the one after the last that the query's servers have. Pure.

Spark gives a sink no place to keep what it has written, so the servers keep it. With each micro-batch a server gets a
token: which run of the query wrote it, and the last micro-batch that each server of the query had then. The next
micro-batch compares this with what the servers have now. A server that was restored from an older copy has less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.log.epochs import DIVERGED

NONE = -1  # where a server has no micro-batch of a query


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch of a query that a server has, -1 for none, and the token that came with it.

    ``servers`` are the last micro-batches of all servers of the query, by name, after that one; None where it was
    written by a release that gave no tokens. ``run`` is the run of the query that wrote it.
    """

    last: int
    run: str = ""
    servers: Mapping[str, int] | None = None

    @classmethod
    def parse(cls, last: int, token: str) -> Progress:
        """Read a token. Raises DataFormatError for one that the sink did not write."""
        if last == NONE or not token:
            return cls(last)
        try:
            found = json.loads(token)
            servers = {str(name): int(batch) for name, batch in found["servers"].items()}
            return cls(last, str(found["run"]), servers)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFormatError(
                f"the token of micro-batch {last} is not one that a sink wrote: {error!r}",
                remedy="Another program writes with this query's writerId; give the query its own.",
            ) from None


def token_of(batch: int, server: str, run: str, progress: Mapping[str, Progress]) -> str:
    """Return the token of a micro-batch that ``server`` is to take, where ``progress`` is what all servers have now."""
    servers = {name: one.last for name, one in progress.items()} | {server: batch}
    return json.dumps({"run": run, "servers": servers}, separators=(",", ":"))


def check_follows(
    batch: int, run: str, progress: Mapping[str, Progress], *, query: str, stream: str, accept_gap: bool
) -> None:
    """Raise RefusedError, reason "diverged", where the servers do not have all micro-batches before ``batch``.

    ``progress`` is by server, and no server has ``batch`` or a later one. A server that is new in the list has none. A
    server that is no longer in the list may have had the last ones. ``accept_gap`` takes the first micro-batch of a
    run in any case. A query of a release that gave no tokens is taken once.
    """
    latest = max(progress.values(), key=lambda one: one.last)
    if accept_gap and latest.run != run:
        return
    if latest.last == NONE:
        if batch:
            raise _refused(
                f"micro-batch {batch} of query {query} follows micro-batch {batch - 1}, and {stream} has none"
            )
        return
    if latest.servers is None:
        return
    removed = sum(name not in progress for name in latest.servers)
    if latest.last + 1 + removed < batch:
        raise _refused(
            f"micro-batch {batch} of query {query} does not follow {latest.last}, the last of this query in {stream}"
        )
    for name, one in progress.items():
        had = latest.servers.get(name, NONE)
        if one.last < had:
            raise _refused(
                f"micro-batch {batch} of query {query} is not written to {stream}: the server {name} had micro-batch "
                f"{had} of this query, and now has {'none' if one.last == NONE else f'{one.last} as the last'}"
            )


def _refused(what: str) -> RefusedError:
    return RefusedError(
        what,
        remedy="If a server was restored from an older copy, restore the query's checkpoint of the same time; or set "
        "acceptGap=true for one start, which gives up the rows between.",
        reason=DIVERGED,
    )
