"""Channels and the words of the transport: pure, without Aeron itself."""

from __future__ import annotations

from aeron_spark.transport.channel import ChannelUri, StreamIdentity, refuse_archive_streams
from aeron_spark.transport.offer import OfferResult

__all__ = ["ChannelUri", "OfferResult", "StreamIdentity", "refuse_archive_streams"]
