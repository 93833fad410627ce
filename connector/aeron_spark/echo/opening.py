"""Opening a publication under a session id of one's own choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.plain import Talking
from aeron_spark.echo import channels, wording
from aeron_spark.endpoint.ids import Entropy
from aeron_spark.errors import TransportError

ATTEMPTS: Final = 4  # each fails by chance once in 2^31 for every publication there is
CLASH: Final = "clashing"  # the driver's word for it


def talking(client: Client, channel: Callable[[int], str], entropy: Entropy) -> Talking:
    """Open a publication on ``channel(session id)``; a session id that the driver has in use is drawn anew."""
    for attempt in range(ATTEMPTS):
        try:
            return Talking(client, channel(channels.random_session(entropy)), wording.STREAM_ID)
        except TransportError as error:
            if CLASH not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
