"""The table of all decoders that a peer reaches."""

from __future__ import annotations

from typing import Final

from tests.unit.fuzz.endpoint_decoders import ENDPOINT
from tests.unit.fuzz.file_decoders import FILES
from tests.unit.fuzz.fuzzing import Decoder
from tests.unit.fuzz.protocol_decoders import PROTOCOL
from tests.unit.fuzz.service_decoders import SERVICE
from tests.unit.fuzz.stream_decoders import STREAM

DECODERS: Final[tuple[Decoder, ...]] = (*PROTOCOL, *ENDPOINT, *SERVICE, *STREAM, *FILES)
