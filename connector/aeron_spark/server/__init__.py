"""The secure endpoint's server."""

from __future__ import annotations

from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.settings import ServerSettings

__all__ = ["MessageServer", "ServerSettings"]
