"""``aeron-spark sbe``: shows the messages and columns of an SBE schema, without Java. ``sbe_rows`` has their rows."""

from __future__ import annotations

from typing import Final

import click

from aeron_spark.cli.formats import display_name, format_of
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import print_json, print_table, table_options
from aeron_spark.errors import DataFormatError, OptionError

SBE_FORMATS: Final = ("json", "parquet", "arrow")  # CSV has no types and no groups


@click.group(cls=SuggestingGroup)
def sbe() -> None:
    """Show the messages and columns of an SBE schema.

    docs/sbe.md explains how messages become rows.
    """


@sbe.command()
@click.argument("schema", metavar="SCHEMA")
@click.option("--message", metavar="NAMES", help="Messages by name or template id, with commas.  [default: all]")
@click.option("--decimals", metavar="TYPE", help="As the option sbeDecimals.  [default: exact]")
@click.option("--times", metavar="TIMES", help="As the option sbeTimes.  [default: explicit]")
@click.option("--enums", metavar="CHOICE", help="As the option sbeEnums.  [default: names]")
@click.option("--sets", metavar="CHOICE", help="As the option sbeSets.  [default: names]")
@table_options
def describe(schema: str, message: str | None, as_json: bool, **flags: str | None) -> None:
    """Print the columns that the messages of the file SCHEMA become, with their Spark types.

    \b
      aeron-spark sbe describe market.xml
      aeron-spark sbe describe market.xml --message Trade --times sendingTime:us
    """
    from aeron_spark.options import SbeOptions
    from aeron_spark.options.declaration import Where
    from aeron_spark.sbe.description import DescribedColumn
    from aeron_spark.sbe.description import describe as describe_messages
    from aeron_spark.sbe.schema import load_schema
    from aeron_spark.sbe.table import MessageColumns

    given = {f"sbe{name.capitalize()}": text for name, text in flags.items() if text is not None}
    options = SbeOptions.parse_alone({"sbeSchema": schema, "sbeMessage": message or "*", **given}, Where.READ_BATCH)
    try:
        compiled = load_schema(schema)
    except DataFormatError as error:
        raise OptionError(error.what, remedy=error.remedy) from None
    columns = MessageColumns(compiled, options.reader_settings(metadata=False))
    messages = describe_messages(columns)
    if as_json:
        for one in messages:
            print_json({"message": one.name, "templateId": one.id, "columns": one.columns})
        return
    print_table(
        f"{compiled.name}: schema {compiled.id}, version {compiled.version}",
        ("message", "template#", "column", "type", "since version#", "remark"),
        [
            (one.name, one.id, column.name, column.type, column.since, column.remark or None)
            for one in messages
            for column in one.columns or (DescribedColumn("-", "-", 0, "no fields"),)
        ],
        empty="",
        optional=("since version#", "template#"),
    )
    try:
        columns.check_names()
    except OptionError as error:
        click.echo(f"aeron-spark: {error}", err=True)


def check_row_format(name: str, chosen: str | None) -> None:
    """Raise OptionError for a file whose format cannot have the rows of SBE messages."""
    found = format_of(name, chosen, "json")
    if found not in SBE_FORMATS:
        raise OptionError(
            f"{display_name(name)} is {found}, and --payload sbe needs rows of JSON lines, Parquet or Arrow",
            remedy="Convert it. If it has one of these formats, name the format with --format.",
        )
