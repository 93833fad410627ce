"""``aeron-spark server check``: checks a configuration and this machine before a server starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import EndpointCommand, endpoint_flags, merged_server_options
from aeron_spark.cli.main import WRONG_COMMAND_LINE
from aeron_spark.cli.output import json_option, print_json
from aeron_spark.errors import AeronSparkError
from aeron_spark.options import ServerOptions

if TYPE_CHECKING:
    from aeron_spark.server.preflight import Finding


@click.command(cls=EndpointCommand)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="The server's TOML file.")
@endpoint_flags(ServerOptions, hidden=True)
@json_option
def check(address: str | None, config: Path | None, as_json: bool, **flags: Any) -> int:
    """Check a server's configuration and this machine. Starts nothing and changes nothing.

    Takes the same command line as 'aeron-spark server', with all its options.

    Prints one finding a line: ok, warning or error, and what to do. The exit code is 0, or 2 if a finding is an error:
    a server with this configuration would not start.

    \b
    For example, before an upgrade or a restart:
      aeron-spark server check --config /etc/aeron-spark/server.toml
    """
    findings = _findings(address, config, flags)
    for one in findings:
        if as_json:
            print_json(one)
        else:
            click.echo(f"{one.level}: {one.subject}: {one.what}{f'. {one.remedy}' if one.remedy else ''}")
    return WRONG_COMMAND_LINE if any(one.level == "error" for one in findings) else 0


def _findings(address: str | None, config: Path | None, flags: dict[str, Any]) -> Sequence[Finding]:
    from aeron_spark.keys.key_files import read_shared_secret
    from aeron_spark.server.preflight import Finding, Preflight

    try:
        parsed = ServerOptions.parse(*merged_server_options(address, config, flags))
        read_shared_secret(parsed.shared_secret_file)
    except AeronSparkError as error:
        return [Finding("error", "options", error.what, error.remedy)]
    is_given = address is not None or any(value is not None for value in flags.values())
    sources = [*(["the command line"] if is_given else []), *([str(config)] if config is not None else [])]
    read = f"{' and '.join(sources)} can be used" if sources else "the defaults are used"
    return [Finding("ok", "options", read), *Preflight(parsed).findings()]
