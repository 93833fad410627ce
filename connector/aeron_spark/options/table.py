"""Every option there is, in one table: what parses them, refuses them and documents them reads it here."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.client_rows import CLIENT_ROWS
from aeron_spark.options.endpoint_rows import BOUND_ROWS, TIME_ROWS, WAY_ROWS
from aeron_spark.options.reading_rows import LIMIT_ROWS, PLACE_ROWS
from aeron_spark.options.row import ENDPOINT, Option
from aeron_spark.options.server_rows import LIMIT_ROWS as SERVER_LIMIT_ROWS
from aeron_spark.options.server_rows import LISTENING_ROWS
from aeron_spark.options.shared_rows import DIRECT_ROWS, SERVER_ROWS
from aeron_spark.options.writing_rows import WRITING_ROWS

TABLE: Final[tuple[Option, ...]] = (
    *DIRECT_ROWS,
    *SERVER_ROWS,
    *PLACE_ROWS,
    *LIMIT_ROWS,
    *WRITING_ROWS,
    *WAY_ROWS,
    *LISTENING_ROWS,
    *SERVER_LIMIT_ROWS,
    *CLIENT_ROWS,
    *TIME_ROWS,
    *BOUND_ROWS,
)


def rows(name: str) -> tuple[Option, ...]:
    """Give every row of this name, whatever its case; a name may stand once in each place."""
    return tuple(option for option in TABLE if option.name.lower() == name.lower())


def rows_of_endpoint(name: str) -> tuple[Option, ...]:
    """Give every row of this name for a server or a client, in any of its three spellings."""
    bare = name.lower()
    return tuple(
        option
        for option in TABLE
        if option.where & ENDPOINT and bare in (option.name.lower(), option.argument, option.flag.removeprefix("--"))
    )
