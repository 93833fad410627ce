"""The options of ``payload=sbe``: the schema, how types become columns, and which SBE messages a reader wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import EVERYWHERE, READING, Option, OptionSet, Where, option
from aeron_spark.options.reader import OptionReader, example
from aeron_spark.options.values import OptionType
from aeron_spark.sbe.settings import (
    FRAMINGS,
    Decimals,
    Mode,
    SbeSettings,
    Times,
    parse_decimals,
    parse_messages,
    parse_mode,
    parse_times,
)

_Sbe = TypeVar("_Sbe", bound="SbeFormatOptions")

MessageNames = Annotated[
    tuple[str, ...], OptionType("MESSAGES", "messages", lambda text, low, high: parse_messages(text))
]
DecimalType = Annotated[Decimals, OptionType("DECIMALS", "type", lambda text, low, high: parse_decimals(text))]
TimeUnits = Annotated[Times, OptionType("TIMES", "times", lambda text, low, high: parse_times(text))]
ModeName = Annotated[
    Mode,
    OptionType("CHOICE", "one of", lambda text, low, high: parse_mode(text), choices=tuple(mode.name for mode in Mode)),
]


@dataclass(frozen=True, kw_only=True)
class SbeFormatOptions(OptionSet, where=EVERYWHERE):
    """The schema of SBE messages, and how its types become columns, for readers and writers.

    With another payload they have no effect, and are refused.
    """

    sbe_schema: str | None = option(
        None,
        "The schema: the path of its XML file on the query's driver, a file name in SparkFiles, or the XML itself. The "
        "executors need no file. A newer schema may continue an old checkpoint. Messages are "
        "written with its version.",
        example="/schemas/market.xml",
    )
    sbe_message: MessageNames | None = option(
        None,
        "The message, by name or template id: its fields are the columns. Several, separated by commas, or `*` for "
        "all: the column `message` has the name, and each message is a column of type STRUCT, which is NULL in rows of "
        "other messages. A writer has one.",
        example="Trade",
        shown="the schema's only message",
    )
    sbe_decimals: DecimalType = option(
        "exact",
        "Composites of mantissa and exponent. `exact`: DECIMAL if the exponent is constant, else a STRUCT. `double`, "
        "or a type such as `decimal(38,9)`: all of them; a message with a value that does not fit is malformed. A "
        "writer does not have `double`.",
        example="decimal(38,9)",
    )
    sbe_times: TimeUnits = option(
        "explicit",
        "Which integers become TIMESTAMP and DATE. `explicit`: those whose unit the schema says; nanoseconds are cut "
        "to microseconds. `none`: no field. A list such as `sendingTime:us,bids.at:ns` adds units that the schema does "
        "not say.",
        example="sendingTime:us",
    )
    sbe_enums: Literal["names", "values"] = option(
        "names", "Enums: as `names` (an unknown value is the text of its number), or as `values`.", example="values"
    )
    sbe_sets: Literal["names", "bits", "flags"] = option(
        "names",
        "Sets: as ARRAY of `names` (an unknown bit is the text of its number), as one number of all `bits`, or as "
        "STRUCT of BOOLEAN `flags`.",
        example="flags",
    )

    @classmethod
    def parse_alone(cls: type[_Sbe], options: Mapping[str, object], where: Where) -> _Sbe:
        """Parse these options without those of a stream. Raises OptionError for a wrong one, or without a schema."""
        found = OptionReader(options, where).read(cls)
        if found.sbe_schema is None:
            raise no_schema()
        return found

    def sbe_settings(self) -> SbeSettings:
        """Return the settings of the columns."""
        return SbeSettings(
            messages=self.sbe_message or (),
            decimals=self.sbe_decimals,
            times=self.sbe_times,
            enums=self.sbe_enums,
            sets=self.sbe_sets,
        )

    def check_sbe(self, payload: str, given: tuple[str, ...]) -> None:
        """Raise OptionError for ``payload=sbe`` without a schema, and for ``given`` options with another payload."""
        if payload == "sbe" and self.sbe_schema is None:
            raise no_schema()
        if payload != "sbe" and given:
            raise OptionError(
                f"option '{given[0]}' is only for payload=sbe, and 'payload' is '{payload}'",
                remedy="Add .option('payload', 'sbe'), on the command line --payload sbe, or leave the option out.",
            )


@dataclass(frozen=True, kw_only=True)
class SbeOptions(SbeFormatOptions, where=READING):
    """The options of a reader of SBE messages."""

    sbe_others: Literal["skip", "keep", "fail"] | None = option(
        None,
        "Messages of other types or other schemas: `skip`, `keep` (rows with NULL in all columns) or `fail`. They do "
        "not count as malformed.",
        example="fail",
        shown="`keep` with `sbeMessage=*`, else `skip`",
    )
    sbe_mode: ModeName = option(
        "FAILFAST",
        "A malformed message: `FAILFAST` fails the task, with recording, position, byte and field. `PERMISSIVE` makes "
        "a row with NULL in all columns and the message's bytes in `_corrupt_record`. `DROPMALFORMED` leaves it out "
        "and warns.",
        example="PERMISSIVE",
    )
    sbe_framing: Literal["one", "sequence", "aligned-8", "sofh", "length16", "length32", "cluster"] | None = option(
        None,
        "How messages lie in an Aeron message. `one`: one, and bytes behind it are ignored. `sequence`: one behind the "
        "other. `aligned-8`: each at a multiple of 8 bytes. `sofh`: behind FIX's Simple Open Framing Header. "
        "`length16`: behind a 16-bit length that includes itself. `length32`: behind a 32-bit length that does not "
        "include itself; both are little-endian. `cluster`: behind the session header of Aeron Cluster's log, whose "
        "other entries are left out.",
        example="sequence",
        shown="`one`; with `cluster=log` `cluster`",
    )

    def reader_settings(self, *, metadata: bool) -> SbeSettings:
        """Return the settings of a decoder; ``metadata`` adds the columns of each message's header."""
        return replace(
            self.sbe_settings(),
            others=self.sbe_others or "",
            mode=self.sbe_mode,
            framing=FRAMINGS[self.sbe_framing or "one"],
            metadata=metadata,
        )


def is_sbe(option: Option) -> bool:
    """Whether an option is one of ``payload=sbe``."""
    return option.argument in SbeOptions.options()


def no_schema() -> OptionError:
    """Return the error for ``payload=sbe`` without a schema."""
    return OptionError(
        "option 'payload' is 'sbe', and 'sbeSchema' is missing",
        remedy=f"{example(SbeFormatOptions.declared['sbe_schema'])}; on the command line --sbe-schema FILE",
    )


def split_sbe_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options without those of ``payload=sbe``, and those alone."""
    names = {option.name.lower() for option in SbeOptions.options().values()}
    sbe = {name: text for name, text in options.items() if name.lower() in names}
    return {name: text for name, text in options.items() if name not in {*sbe, "payload"}}, sbe
