"""What the driver's guard is asked for on the channels of Echo's servers; a driver without the guard ignores it.

Any program may speak Echo, with whatever terms its driver gives it: those of the reference have 16 MiB. A duologue's
channels are for its client's address.
"""

from __future__ import annotations

from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.guard import GuardRules, Ownership, guarded, register
from aeron_spark.echo import wording

RULES: Final = GuardRules(
    streams=(wording.STREAM_ID,),
    term_length=16 << 20,
    sessions=512,  # those that ended some seconds ago among them
    sessions_per_source=64,
    rate=50,
    burst=100,
    total_rate=400,
    destinations=1_024,
    destinations_per_source=128,
    joining=True,  # a client subscribes to what all clients hear before it knows a session
)


def watched(channel: str) -> str:
    """Return a server's channel, guarded."""
    return guarded(channel, RULES)


def own(client: Client, place: wording.Place, address: str) -> list[Ownership]:
    """Have only ``address`` use a duologue's two channels, which ``client`` opens next."""
    session_id, stream_id = place.session_id, wording.STREAM_ID
    return [
        register(
            client, "received", port=place.data_port, session_id=session_id, stream_id=stream_id, address=address,
            wait=False,
        ),
        register(
            client, "published", port=place.control_port, session_id=session_id, stream_id=stream_id,
            address=address, wait=False,
        ),
    ]  # fmt: skip
