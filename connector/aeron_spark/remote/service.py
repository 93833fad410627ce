"""The remote calls of named streams: their number, their names, and how errors come back as what they were."""

from __future__ import annotations

from typing import Final

from aeron_spark import errors
from aeron_spark.endpoint.objects import FIRST_SERVICE
from aeron_spark.errors import AeronSparkError, RemoteError

STREAMS: Final = FIRST_SERVICE + 1  # the number of the object that serves them
METHODS: Final = (
    "list_all", "describe", "create", "delete", "purge", "states", "boundary", "position_at", "wait_beyond", "lease",
    "read", "stop", "last", "enter", "open_stage", "finish_stage", "drop_stage", "commit", "abort",
)  # fmt: skip
REMEDY: Final = "\x1f"  # between what went wrong and what to do
KINDS: Final[dict[str, type[AeronSparkError]]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AeronSparkError) and kind is not RemoteError
}


def to_tell(error: AeronSparkError) -> AeronSparkError:
    """Return the error as a server raises it for a client: its remedy goes along."""
    kind = KINDS.get(type(error).__name__, AeronSparkError)
    return kind(f"{error.what}{REMEDY}{error.remedy}")


def as_told(error: RemoteError) -> AeronSparkError:
    """Return the error that the server raised, where it was one of this project's."""
    kind = KINDS.get(error.code)
    if kind is None:
        return error
    _, _, text = error.what.partition(": ")
    what, _, remedy = text.partition(REMEDY)
    return kind(what, remedy=remedy)


def failure(name: str, what: str, remedy: str) -> AeronSparkError:
    """Return the error of a piece that says why a request failed."""
    return KINDS.get(name, AeronSparkError)(what, remedy=remedy)
