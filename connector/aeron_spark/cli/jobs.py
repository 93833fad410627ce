"""``aeron-spark jobs`` and ``jars``: the ready jobs and the jars for ``spark-submit``, without Java and Spark."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

import click

from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options
from aeron_spark.errors import OptionError

if TYPE_CHECKING:
    from aeron_spark.jobs.session import JobArguments


@click.group(cls=SuggestingGroup)
def jobs() -> None:
    """Show the ready jobs for spark-submit, which move rows between Aeron streams and Delta tables.

    docs/jobs.md explains each of them.

    \b
      spark-submit $(aeron-spark jobs path aeron_to_delta) --help
    """


@jobs.command("list")
@table_options
def list_(as_json: bool) -> None:
    """List the jobs."""
    from aeron_spark.jobs import NAMES, path_of

    rows = [(name, _command_line(name).description, path_of(name)) for name in NAMES]
    if as_json:
        for name, summary, path in rows:
            print_json({"name": name, "summary": summary, "path": str(path)})
        return
    print_table("jobs", ("job", "summary"), [row[:2] for row in rows], empty="")


@jobs.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print the arguments of the job NAME, and examples."""
    from aeron_spark.jobs import path_of

    text = _command_line(_known(name)).format_help()
    if as_json:
        print_json({"name": name, "path": str(path_of(name)), "help": text})
        return
    click.echo(text, nl=False)


@jobs.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the path of the job NAME, for spark-submit.

    \b
      spark-submit $(aeron-spark jobs path aeron_to_delta) --table /lake/flights ...
    """
    from aeron_spark.jobs import path_of

    click.echo(path_of(_known(name)))


@click.command()
@json_option
def jars(as_json: bool) -> None:
    """Print the paths of the jars of format('aeron-jvm'), separated by commas.

    Spark loads jars when its JVM starts. In a program, aeron_spark.spark.configure(builder) names them.

    
      spark-submit --jars $(aeron-spark jars) job.py
    """
    from aeron_spark.aeron.jvm import spark_classpath

    paths = spark_classpath()
    if as_json:
        print_json({"jars": paths})
        return
    click.echo(",".join(paths))


def _known(name: str) -> str:
    """Return ``name``. Raises OptionError if it is not the name of a job."""
    from aeron_spark.jobs import NAMES

    if name in NAMES:
        return name
    nearest = difflib.get_close_matches(name, NAMES, n=1)
    raise OptionError(
        f"no job is called {name!r}",
        remedy=f"Did you mean {nearest[0]!r}?" if nearest else f"Jobs: {', '.join(NAMES)}.",
    )


def _command_line(name: str) -> JobArguments:
    arguments: JobArguments = importlib.import_module(f"aeron_spark.jobs.{name}").command_line()
    return arguments
