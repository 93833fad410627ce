"""A schema compiles to offsets, lengths, versions and values as the specification says; a wrong one names its fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.sbe.model import (
    CompositeType,
    Constant,
    Counts,
    DataHeader,
    EncodedType,
    EnumType,
    Field,
    Integer,
    Primitive,
    UnknownParts,
)
from aeron_spark.sbe.schema import load_schema
from tests.unit.sbe.schemas import GROUP, HEADER, schema_of, schema_text


def fields_of(types: str, body: str) -> dict[str, Field]:
    (message,) = schema_of(types, body).messages
    return {field.name: field for field in message.block.fields}


TWICE = '<composite name="c{}"><ref name="a" type="c{}"/><ref name="b" type="c{}"/></composite>'


def test_fields_are_packed_and_an_offset_leaves_a_gap() -> None:
    (message,) = schema_of(
        "", '<field name="a" id="1" type="uint8"/><field name="b" id="2" type="int32"/>'
        '<field name="c" id="3" type="int64" offset="16"/><field name="d" id="4" type="char" offset="0"/>',
    ).messages  # fmt: skip
    assert [(field.offset, field.size) for field in message.block.fields] == [(0, 1), (1, 4), (16, 8), (24, 1)]
    assert message.block.length == 25


def test_a_block_length_pads_and_a_constant_takes_no_bytes() -> None:
    schema = load_schema(
        schema_text('<type name="k" primitiveType="uint16" presence="constant">7</type>', "").replace(
            '<message name="M" id="1">',
            '<message name="M" id="1" blockLength="32"><field name="a" id="1" type="k"/><field name="b" id="2" '
            'type="int8"/>',
        )
    )
    (message,) = schema.messages
    assert message.block.length == 32
    assert [(field.offset, field.size) for field in message.block.fields] == [(0, 0), (0, 1)]
    assert message.block.fields[0].constant == Constant(7, Primitive.UINT16)


def test_a_presence_of_a_field_overrides_that_of_its_type() -> None:
    types = '<type name="maybe" primitiveType="int8" presence="optional" nullValue="5"/>'
    fields = fields_of(
        types,
        '<field name="a" id="1" type="maybe"/><field name="b" id="2" type="maybe" presence="required"/>'
        '<field name="c" id="3" type="int8" presence="optional"/><field name="d" id="4" type="int8"/>',
    )
    assert [field.optional for field in fields.values()] == [True, False, True, False]
    assert isinstance(fields["a"].type, EncodedType)
    assert fields["a"].type.null_value == 5
    assert isinstance(fields["c"].type, EncodedType)
    assert fields["c"].type.null_value == -128


@pytest.mark.parametrize(
    ("primitive", "null"),
    [
        (Primitive.CHAR, 0),
        (Primitive.INT16, -(2**15)),
        (Primitive.INT64, -(2**63)),
        (Primitive.UINT8, 255),
        (Primitive.UINT64, 2**64 - 1),
    ],
)
def test_null_values_of_primitives(primitive: Primitive, null: int) -> None:
    assert primitive.null == null


def test_an_enum_takes_its_null_from_itself_its_type_or_its_primitive() -> None:
    types = (
        '<type name="code" primitiveType="uint16" presence="optional" nullValue="9"/>'
        '<enum name="A" encodingType="code"><validValue name="X">1</validValue></enum>'
        '<enum name="B" encodingType="uint8" nullValue="0"/><enum name="C" encodingType="char"/>'
    )
    fields = fields_of(types, "".join(f'<field name="{name}" id="1" type="{name}"/>' for name in "ABC"))
    nulls = [field.type.null for field in fields.values() if isinstance(field.type, EnumType)]
    assert nulls == [9, 0, 0]


def test_a_composite_has_offsets_refs_and_nested_types() -> None:
    types = (
        '<type name="t" primitiveType="int16"/><composite name="C" sinceVersion="1">'
        '<type name="a" primitiveType="uint8"/><ref name="b" type="t" offset="4" sinceVersion="2"/>'
        '<composite name="inner"><type name="x" primitiveType="int8"/></composite></composite>'
    )
    kind = fields_of(types, '<field name="f" id="1" type="C"/>')["f"].type
    assert isinstance(kind, CompositeType)
    assert [(member.name, member.offset, member.since) for member in kind.members] == [
        ("a", 0, 0),
        ("b", 4, 2),
        ("inner", 6, 0),
    ]
    assert kind.size == 7


def test_the_version_of_a_field_is_the_later_one_of_its_own_and_its_types() -> None:
    types = '<type name="t" primitiveType="int8" sinceVersion="2"/>'
    fields = fields_of(types, '<field name="a" id="1" type="t" sinceVersion="1"/><field name="b" id="2" type="t"/>')
    assert [field.since for field in fields.values()] == [2, 2]


@pytest.mark.parametrize(
    ("fields", "lengths"),
    [
        ('<field name="a" id="1" type="int8"/><field name="c" id="2" type="C"/>', [(0, 5, "c.x"), (3, 6, "c.y")]),
        # a later member within a block does not shorten what it must have
        ('<field name="c" id="1" type="C"/><field name="b" id="2" type="int64"/>', [(0, 13, "b")]),
    ],
)
def test_what_a_block_must_have_depends_on_the_version(fields: str, lengths: list[tuple[int, int, str]]) -> None:
    types = (
        '<composite name="C"><type name="x" primitiveType="int32"/>'
        '<type name="y" primitiveType="int8" sinceVersion="3"/></composite>'
    )
    (message,) = schema_of(types, fields).messages
    assert message.block.required_lengths() == lengths


def test_headers_are_read_by_name_with_any_widths_and_constants() -> None:
    header = (
        '<composite name="long"><type name="version" primitiveType="uint8"/><type name="extra" primitiveType="int64"/>'
        '<type name="blockLength" primitiveType="uint32"/><type name="templateId" primitiveType="uint16"/>'
        '<type name="schemaId" primitiveType="uint16" presence="constant">77</type></composite>'
    )
    found = schema_of(header, "", 'headerType="long" byteOrder="bigEndian"')
    assert found.big_endian
    assert found.header.length == 15
    assert (found.header.version.offset, found.header.block_length.offset, found.header.template_id.offset) == (
        0,
        9,
        13,
    )
    assert found.header.schema_id.constant == 77


def test_a_group_and_data_are_read_by_name() -> None:
    types = (
        '<composite name="dims"><type name="numInGroup" primitiveType="uint32"/>'
        '<type name="blockLength" primitiveType="uint8"/><type name="other" primitiveType="uint16"/></composite>'
        '<composite name="text"><type name="length" primitiveType="uint32"/>'
        '<type name="data" primitiveType="char" length="0"/></composite>'
    )
    (message,) = schema_of(
        types,
        '<group name="g" id="1" dimensionType="dims" sinceVersion="2"><field name="a" id="2" type="int8"/>'
        '<group name="inner" id="3"/></group><data name="d" id="4" type="text"/>',
    ).messages
    (group,), (data,) = message.block.groups, message.block.data
    assert (group.since, group.dimensions.length, group.dimensions.count.offset) == (2, 7, 0)
    assert (group.dimensions.block_length.offset, group.block.groups[0].dimensions.length) == (4, 4)
    assert (data.header.length.primitive, data.header.size, data.encoding) == (Primitive.UINT32, 4, "US-ASCII")


COUNTED = (
    '<composite name="counted"><type name="blockLength" primitiveType="uint8"/><type name="numInGroup" '
    'primitiveType="uint8"/><type name="numVarDataFields" primitiveType="uint8"/><type name="numGroups" '
    'primitiveType="uint16" presence="constant">2</type></composite>'
)


def test_counts_of_parts_are_read_by_name_and_a_constant_is_none() -> None:
    (message,) = schema_of(COUNTED, '<group name="g" id="1" dimensionType="counted"/>').messages
    assert message.block.groups[0].dimensions.counts == Counts(None, Integer(Primitive.UINT8, 2))


def test_headers_of_unknown_parts_are_those_that_all_parts_have() -> None:
    length = '<type name="length" primitiveType="{0}"/>'
    text = f'<composite name="t{{0}}">{length}<type name="x" primitiveType="char"/></composite>'
    types = COUNTED + text.format("uint8") + text.format("uint16")
    known = schema_of(types, '<group name="g" id="1"/><data name="d" id="2" type="tuint8"/>').unknown
    assert (known.dimensions.length, known.data) == (4, DataHeader(1, Integer(Primitive.UINT8, 0)))
    several = '<group name="g" id="1" dimensionType="counted"/><data name="d" id="2" type="tuint8"/>'
    assert schema_of(types, several + '<data name="e" id="3" type="tuint16"/>').unknown == UnknownParts(None, None)
    other = schema_text("", "").replace(GROUP, '<enum name="groupSizeEncoding" encodingType="float"/>')
    assert load_schema(other).unknown == UnknownParts(None, None)


@pytest.mark.parametrize(
    ("types", "body", "reason"),
    [
        ("", '<field name="a" id="1" type="none"/>', "<field> 'a' uses the type 'none', which is not defined"),
        ("", '<field name="a" id="1"/>', "has no attribute 'type'"),
        ("", '<field name="a" id="x" type="int8"/>', "has id='x', expected a number"),
        ("", '<field name="a" id="1" type="int8"/><field name="a" id="2" type="int8"/>', "has the same name"),
        ("", '<field name="a" id="1" type="int64"/><field name="b" id="2" type="int8" offset="4"/>', "ends at 8"),
        ("", '<group name="g" id="1"/><field name="a" id="2" type="int8"/>', "<field> 'a' comes too late"),
        ("", "<other/>", "is not a part of a message"),
        ("", '<group name="g" id="1" dimensionType="int8"/>', "needs a composite as its dimensionType"),
        ("", '<data name="d" id="1" type="groupSizeEncoding"/>', "has no member 'length'"),
        ("", '<field name="a" id="1" type="int8" presence="sometimes"/>', "has presence='sometimes'"),
        ("", '<field name="a" id="1" type="int8" presence="constant"/>', "is constant and has no value"),
        ('<type name="t" primitiveType="int9"/>', '<field name="a" id="1" type="t"/>', "has primitiveType='int9'"),
        (
            '<type name="t" primitiveType="int8" presence="optional" nullValue="300"/>',
            '<field name="a" id="1" type="t"/>',
            "has nullValue '300', expected a number from -128 to 127",
        ),
        (
            '<set name="s" encodingType="uint8"><choice name="x">8</choice></set>',
            '<field name="a" id="1" type="s"/>',
            "<choice> 'x' is bit '8' of a set with 8 bits",
        ),
        (
            '<set name="s" encodingType="int8"/>',
            '<field name="a" id="1" type="s"/>',
            "whose encodingType must be unsigned",
        ),
        (
            '<enum name="e" encodingType="char"><validValue name="x">ab</validValue></enum>',
            '<field name="a" id="1" type="e"/>',
            "expected one character",
        ),
        (
            '<composite name="c"><ref name="c" type="c"/></composite>',
            '<field name="a" id="1" type="c"/>',
            "uses the type 'c', which contains it",
        ),
        (
            '<type name="t" primitiveType="int8"/><type name="t" primitiveType="int8"/>', "", "is defined twice",
        ),
        (
            '<type name="t" primitiveType="int8" presence="constant" valueRef="E.X"/>',
            '<field name="a" id="1" type="t"/>',
            "uses the type 'E', which is not defined",
        ),
        (
            "".join(f'<composite name="c{one}"><ref name="a" type="c{one + 1}"/></composite>' for one in range(2_000)),
            '<field name="a" id="1" type="c0"/>',
            "uses types in types, more than 64 deep",
        ),
        (
            '<composite name="c0"/>' + "".join(map(TWICE.format, range(1, 60), range(59), range(59))),
            '<field name="a" id="1" type="c59"/>',
            "is too much: the limit of a composite is 200000 values",
        ),
        (
            '<composite name="c0"/>' + "".join(map(TWICE.format, range(1, 17), range(16), range(16))),
            "".join(f'<field name="f{one}" id="1" type="c16"/>' for one in range(4)),
            "<field> 'f3' is too much: the limit of a schema is 200000 values in its fields",
        ),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_refused_with_its_place(types: str, body: str, reason: str) -> None:
    with pytest.raises(DataFormatError) as refused:
        schema_of(types, body)
    assert reason in refused.value.what
    assert refused.value.what.startswith("the schema's text, line ")
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<other/>", "<other> is the root, expected <messageSchema>"),
        (f"<messageSchema><types>{HEADER}</types></messageSchema>", "has no message"),
        (
            f"<messageSchema><types>{GROUP}</types><message name='M' id='1'/></messageSchema>",
            "'messageHeader', which is not",
        ),
        (
            f"<messageSchema><types>{HEADER}</types><message name='A' id='1'/>"
            "<message name='B' id='1'/></messageSchema>",
            "<message> 'B' has the same name or id",
        ),
        ("<messageSchema byteOrder='middle'/>", "has byteOrder='middle'"),
        (
            "<messageSchema>\n<mesage name='M' id='1'/></messageSchema>",
            "line 2: <mesage> 'M' is not a part of a schema",
        ),
        ("<messageSchema><messages><group name='G'/></messages></messageSchema>", "<group> 'G' is not a part"),
        ("<messageSchema><include href='x.xml'/></messageSchema>", "<include> is not a part of a schema"),
    ],
)
def test_a_wrong_root_is_refused(text: str, reason: str) -> None:
    with pytest.raises(DataFormatError) as refused:
        load_schema(text)
    assert reason in refused.value.what


def test_messages_lie_in_messages_elements_as_sbe_2_has_them(tmp_path: Path) -> None:
    """The words of the finding were "has no message"; an included file has ``<messages>`` as its root, too."""
    (tmp_path / "more.xml").write_text('<messages xmlns="urn:x"><message name="C" id="3"/></messages>')
    file = tmp_path / "s.xml"
    file.write_text(
        f'<messageSchema xmlns="urn:x" xmlns:xi="http://www.w3.org/2001/XInclude"><annotation/><types>{HEADER}</types>'
        '<messages><annotation/><message name="A" id="1"/></messages><message name="B" id="2"/>'
        '<xi:include href="more.xml"/></messageSchema>'
    )
    assert [message.name for message in load_schema(str(file)).messages] == ["A", "B", "C"]


@pytest.mark.parametrize(
    "body", ['<field name="a" id="1" type="int8" alignment="4"/>', '<group name="a" id="1" alignment="8"/>']
)
def test_an_alignment_of_sbe_2_is_refused(body: str) -> None:
    with pytest.raises(DataFormatError, match=r"line \d+: <\w+> 'a' has alignment=[48], which is not supported"):
        schema_of("", body)


def test_a_schema_is_a_file_or_its_text(tmp_path: Path) -> None:
    text = schema_text("", '<field name="a" id="1" type="int8"/>')
    file = tmp_path / "s.xml"
    file.write_text(text)
    assert load_schema(str(file)).messages == load_schema("\ufeff\n" + text).messages
    assert load_schema(str(file)).name == "s.xml"
    with pytest.raises(OptionError, match=r"'/none\.xml' cannot be read: No such file"):
        load_schema("/none.xml")
    with pytest.raises(OptionError, match="cannot be read: Is a directory"):
        load_schema(str(tmp_path))


NEWER = {
    "field": ("", '<field name="b" id="2" type="int32" sinceVersion="4"/>'),
    "type": ('<type name="t" primitiveType="int8" sinceVersion="4"/>', ""),
    "member": ('<composite name="c"><type name="m" primitiveType="int8" sinceVersion="4"/></composite>', ""),
    "value": ('<enum name="e" encodingType="int8"><validValue name="A" sinceVersion="4">1</validValue></enum>', ""),
    "choice": ('<set name="s" encodingType="uint8"><choice name="A" sinceVersion="4">1</choice></set>', ""),
    "group": ("", '<group name="g" id="3" sinceVersion="4"><field name="f" id="4" type="int8"/></group>'),
    "field of a group": ("", '<group name="g" id="3"><field name="f" id="4" type="int8" sinceVersion="4"/></group>'),
    "data": (
        '<composite name="d"><type name="length" primitiveType="uint8"/>'
        '<type name="x" primitiveType="uint8" length="0"/></composite>',
        '<data name="b" id="5" type="d" sinceVersion="4"/>',
    ),
}


@pytest.mark.parametrize("part", NEWER)
def test_a_part_that_is_newer_than_its_schema_is_refused(part: str) -> None:
    """``send`` wrote b=5 and ``receive`` gave NULL: each decoder takes a newer field for absent."""
    types, body = NEWER[part]
    with pytest.raises(
        DataFormatError, match=r"line \d+: <\w+> '\w+' has sinceVersion=4, but the schema has version=3"
    ):
        schema_of(types, body)


def test_a_message_that_is_newer_than_its_schema_is_refused() -> None:
    text = schema_text("", "").replace('<message name="M" id="1">', '<message name="M" id="1" sinceVersion="4">')
    with pytest.raises(DataFormatError, match="<message> 'M' has sinceVersion=4"):
        load_schema(text)
