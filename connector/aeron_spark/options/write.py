"""``WriteOptions``: what ``df.writeStream`` and ``df.write`` were given, parsed once, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.options.given import OptionReader, example
from aeron_spark.options.row import Where
from aeron_spark.options.ways import DirectRoute, ServerRoute, route_of

MAX_WRITER_ID: Final = 255  # bytes of UTF-8; the wire format has one byte for its length


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a writer. Picklable; nothing in it has been started."""

    streaming: bool
    way: DirectRoute | ServerRoute
    payload: str  # auto | raw | framed | arrow
    ack: str  # auto | archive | driver
    offer_timeout_s: float
    when_unconnected: str  # fail | drop
    max_message_bytes: int | None  # None: the channel's limit
    writer_id: str | None  # None: the query's id
    record: str  # auto | never
    accept_gap: bool = False  # of a streaming query through a server

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> WriteOptions:
        """Parse what Spark hands over. Raises ``OptionError``, one sentence and a remedy, for the first thing wrong."""
        given = OptionReader(options, Where.WRITE_STREAM if streaming else Where.WRITE_BATCH)
        way = route_of(given, reading=False)
        ack, when_unconnected = given.choice("ack"), given.choice("whenUnconnected")
        if ack == "archive" and when_unconnected == "drop":
            raise OptionError(
                "options 'ack' ('archive': done when recorded) and 'whenUnconnected' ('drop': rows may be thrown "
                "away) contradict",
                remedy="Use ack 'driver' to drop, or whenUnconnected 'fail' to be sure",
            )
        return cls(
            streaming=streaming,
            way=way,
            payload=given.choice("payload"),
            ack=ack,
            offer_timeout_s=given.seconds("offerTimeout"),
            when_unconnected=when_unconnected,
            max_message_bytes=given.size("maxMessageBytes"),
            writer_id=_writer_id(given),
            record=given.choice("record"),
            accept_gap=streaming and given.flag("acceptGap"),
        )


def _writer_id(given: OptionReader) -> str | None:
    writer_id = given.text("writerId")
    if writer_id is not None and len(writer_id.encode("utf-8", "surrogatepass")) > MAX_WRITER_ID:
        raise OptionError(
            f"option 'writerId' is longer than {MAX_WRITER_ID} bytes of UTF-8", remedy=example(given.option("writerId"))
        )
    return writer_id
