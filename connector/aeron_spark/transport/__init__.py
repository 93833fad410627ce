"""Aeron channels and the interface to a message transport, without Aeron itself."""

from __future__ import annotations

from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri, StreamIdentity, refuse_archive_streams

__all__ = ["ChannelUri", "OfferResult", "StreamIdentity", "refuse_archive_streams"]
