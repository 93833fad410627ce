"""Where a query begins and a batch query ends: ``startingOffsets`` and ``endingOffsets``, resolved. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aeron_spark.errors import OptionError
from aeron_spark.log.api import RecordingState, recording_key
from aeron_spark.options import WantedOffsets


def resolve(
    wanted: WantedOffsets,
    states: Collection[RecordingState],
    latest: Callable[[RecordingState], int],
    *,
    archives: Collection[str],
    option: str = "startingOffsets",
) -> dict[str, int]:
    """Give a position for every recording of ``states``.

    ``latest`` gives the end of a recording's last complete message; it is asked only where that is wanted. ``archives``
    are the keys of the archives in use. Raises ``OptionError`` where a named recording or position is not there.
    """
    by_key = {state.key: state for state in states}
    named = {}
    for name, value in wanted.named.items():
        key = _key(name, archives, option)
        state = by_key.get(key)
        if state is None:
            raise OptionError(
                f"option '{option}' names recording {name}, and the stream has no such recording",
                remedy=f"Its recordings are: {', '.join(sorted(by_key)) or 'none yet'}",
            )
        if key in named:
            raise OptionError(f"option '{option}' names recording {key} twice", remedy="Give it once")
        if isinstance(value, int) and not state.start <= value <= state.end:
            raise OptionError(
                f"option '{option}': position {value} is outside of recording {key}, "
                f"which has {state.start} to {state.end}",
                remedy="Give a position within it, or 'earliest' or 'latest'",
            )
        named[key] = value
    positions = {}
    for key, state in by_key.items():
        value = named.get(key, wanted.rest)
        if isinstance(value, int):
            positions[key] = value
        else:
            positions[key] = state.start if value == "earliest" else latest(state)
    return positions


def _key(name: str, archives: Collection[str], option: str) -> str:
    if "/" in name:
        return name
    if len(archives) != 1:
        raise OptionError(
            f"option '{option}' names recording {name}, and with several archives ids are not unique",
            remedy=f"Name it as archive/id; the archives are: {', '.join(sorted(archives))}",
        )
    return recording_key(next(iter(archives)), int(name))
