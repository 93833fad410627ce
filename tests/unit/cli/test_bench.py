"""``bench load`` refuses a wrong command line before it starts anything."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from aeron_spark.cli.main import cli
from aeron_spark.errors import OptionError


def run(*arguments: str) -> str:
    """Run a command and return its output. Raises the command's exception."""
    return CliRunner().invoke(cli, ["bench", *arguments], standalone_mode=False, catch_exceptions=False).output


def test_a_wrong_address_is_refused() -> None:
    with pytest.raises(OptionError, match=r"127\.0\.0\.1:x"):
        run("load", "127.0.0.1:x", "--clients", "50")


def test_options_of_the_client_are_checked_first() -> None:
    with pytest.raises(OptionError, match="connectTimeout"):
        run("load", "127.0.0.1:20121", "--connect-timeout", "soon")


@pytest.mark.parametrize("wrong", ["--clients=0", "--messages=-1", "--size=-1", "--hold=-1", "--at-once=0"])
def test_a_number_out_of_range_is_refused(wrong: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        run("load", "127.0.0.1:20121", wrong)
    assert wrong.partition("=")[0] in refused.value.format_message()


def test_the_error_for_an_unknown_command_names_the_nearest_one() -> None:
    with pytest.raises(click.UsageError, match="Did you mean 'load'"):
        run("laod")
