"""What came of listening at several places."""

from __future__ import annotations

from dataclasses import dataclass, field

from aeron_spark.errors import AeronSparkError
from aeron_spark.transport.port import Listening, Place


@dataclass(slots=True)
class Opened:
    """A transport that listens: where, by token, and why not elsewhere."""

    transport: Listening
    places: dict[int, Place] = field(default_factory=dict)
    failures: list[AeronSparkError] = field(default_factory=list)

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()
