"""The parser of schemas reads no other files, has limits, and names the place of each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.sbe import schema
from aeron_spark.sbe.schema import parse_file, parse_text

XI = 'xmlns:xi="http://www.w3.org/2001/XInclude"'


def test_names_have_no_namespace_and_attributes_of_other_vendors_are_left_out() -> None:
    root = parse_text(
        '<s:messageSchema xmlns:s="urn:s" xmlns:x="urn:x" id="1" x:id="2">\n<types>a</types></s:messageSchema>'
    )
    assert (root.name, root.attributes, root.line) == ("messageSchema", {"id": "1"}, 1)
    (child,) = root.children
    assert (child.name, child.text, child.line) == ("types", "a", 2)


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY x "xx"><!ENTITY y "&x;&x;">]><a>&y;</a>',
        '<!DOCTYPE a SYSTEM "a.dtd"><a/>',
    ],
)
def test_a_document_type_is_refused(text: str) -> None:
    with pytest.raises(DataFormatError, match=r"the schema's text, line 1: the schema has a <!DOCTYPE"):
        parse_text(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<a>\n<b></a>", "line 2: not well-formed XML: mismatched tag"),
        ("", "not well-formed XML: no element found"),
        ("<a>&other;</a>", "not well-formed XML: undefined entity"),
        ('<?xml version="1.0" encoding="nonsense"?><a/>', "nonsense|unknown encoding"),
    ],
)
def test_a_text_that_is_not_xml_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(DataFormatError, match=reason):
        parse_text(text) if "nonsense" not in text else schema._ElementParser("x", 10).parse(text.encode())


def test_depth_count_and_size_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    deepest = "<a>" * schema.MAX_DEPTH + "</a>" * schema.MAX_DEPTH
    assert parse_text(deepest).name == "a"
    with pytest.raises(DataFormatError, match="64 nested"):
        parse_text(f"<a>{deepest}</a>")
    monkeypatch.setattr(schema, "MAX_ELEMENTS", 3)
    parse_text("<a><b/><b/></a>")
    with pytest.raises(DataFormatError, match="3 elements"):
        parse_text("<a><b/><b/><b/></a>")
    monkeypatch.setattr(schema, "MAX_BYTES", 10)
    with pytest.raises(DataFormatError, match="longer than 10 bytes"):
        parse_text("<a>1234</a>")


def test_files_of_the_schemas_folder_are_included(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "schema.xml").write_text(f'<a {XI}><xi:include href="more/b.xml"/><c/></a>')
    (tmp_path / "more" / "b.xml").write_text(f'<b {XI}><xi:include href="../d.xml"/></b>')
    (tmp_path / "d.xml").write_text("<d/>")
    root = parse_file(tmp_path / "schema.xml")
    assert [child.name for child in root.children] == ["b", "c"]
    assert root.children[0].children[0].file == "../d.xml"


@pytest.mark.parametrize(
    ("href", "reason"),
    [
        ("/etc/passwd", "which is not in the schema's folder"),
        ("../outside.xml", "which is not in the schema's folder"),
        ("link.xml", "which is not in the schema's folder"),
        ("missing.xml", "which cannot be read: No such file"),
        ("schema.xml", "which includes this file"),
        ("", "has no attribute 'href'"),
    ],
)
def test_other_files_are_not_included(tmp_path: Path, href: str, reason: str) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    (tmp_path / "outside.xml").write_text("<types/>")
    (folder / "link.xml").symlink_to(tmp_path / "outside.xml")
    (folder / "schema.xml").write_text(f'<a {XI}>\n<xi:include href="{href}"/></a>')
    with pytest.raises(DataFormatError, match=f"schema.xml, line 2: .*{reason}"):
        parse_file(folder / "schema.xml")


def test_includes_have_a_limit_and_need_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_INCLUDES", 2)
    (tmp_path / "b.xml").write_text("<b/>")
    include = '<xi:include href="b.xml"/>'
    (tmp_path / "schema.xml").write_text(f"<a {XI}>{include * 2}</a>")
    assert len(parse_file(tmp_path / "schema.xml").children) == 2
    (tmp_path / "schema.xml").write_text(f"<a {XI}>{include * 3}</a>")
    with pytest.raises(DataFormatError, match="include number 3, the limit is 2"):
        parse_file(tmp_path / "schema.xml")
    with pytest.raises(DataFormatError, match="a schema that is given as a text has no folder"):
        parse_text(f"<a {XI}>{include}</a>")
    with pytest.raises(DataFormatError, match="only XML can be included"):
        parse_text(f'<a {XI}><xi:include href="b.xml" parse="text"/></a>')
