"""The secure endpoint's server."""

from __future__ import annotations

from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings

__all__ = ["ServerSettings", "TransportServer"]
