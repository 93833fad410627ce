"""``aeron-spark server check``: checks a configuration and this machine before a server starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aeron_spark.cli.arguments import read_configuration
from aeron_spark.cli.main import WRONG_COMMAND_LINE
from aeron_spark.cli.output import print_json
from aeron_spark.errors import AeronSparkError
from aeron_spark.options import ServerOptions

if TYPE_CHECKING:
    from aeron_spark.server.preflight import Finding


def check_configuration(config: Path | None, *, as_json: bool) -> int:
    """Print one finding a line. Return 0, or 2 if one is an error."""
    findings = _findings(config)
    for one in findings:
        if as_json:
            print_json(one)
        else:
            click.echo(f"{one.level}: {one.subject}: {one.what}{f'. {one.remedy}' if one.remedy else ''}")
    return WRONG_COMMAND_LINE if any(one.level == "error" for one in findings) else 0


def _findings(config: Path | None) -> Sequence[Finding]:
    from aeron_spark.server.preflight import Finding, Preflight
    from aeron_spark.server.settings import ServerSettings

    try:
        options = {} if config is None else read_configuration(config)
        parsed = ServerOptions.parse("", options)
        ServerSettings.of(parsed)
    except AeronSparkError as error:
        return [Finding("error", "options", error.what, error.remedy)]
    read = "the defaults are used" if config is None else f"{config} can be used"
    return [Finding("ok", "options", read), *Preflight(parsed).findings()]
