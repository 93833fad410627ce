"""Texts of schemas for tests: a standard header and group header, and what a test adds."""

from __future__ import annotations

from aeron_spark.sbe.model import Schema
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns

HEADER = """<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>"""
GROUP = """<composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
<type name="numInGroup" primitiveType="uint16"/></composite>"""


def schema_text(types: str, body: str, attributes: str = "") -> str:
    """Return a schema with one message ``M`` of this ``body``."""
    return (
        f'<messageSchema package="p" id="1" version="3" {attributes}><types>{HEADER}{GROUP}{types}</types>\n'
        f'<message name="M" id="1">{body}</message></messageSchema>'
    )


def schema_of(types: str, body: str, attributes: str = "") -> Schema:
    """Compile such a schema."""
    return load_schema(schema_text(types, body, attributes))


def types_of(types: str, body: str, settings: SbeSettings | None = None) -> dict[str, str]:
    """Return the Arrow types of the columns of such a schema."""
    columns = MessageColumns(schema_of(types, body), settings or SbeSettings())
    return {field.name: str(field.type) for field in columns.arrow_schema}
