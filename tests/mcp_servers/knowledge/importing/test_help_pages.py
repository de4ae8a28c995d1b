"""Mallard pages and DocBook are read with their titles, whatever their file is called."""

from __future__ import annotations

import pytest

from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob

MALLARD = """<?xml version="1.0" encoding="utf-8"?>
<page xmlns="http://projectmallard.org/1.0/" type="topic" id="tea">
  <info><link type="guide" xref="index"/><credit><name>A. Writer</name></credit>
    <desc>Make tea with the <app>Kettle</app>.</desc><title type="link">Link</title></info>
  <title>お茶をいれる</title>
  <p>Press <guiseq><gui>File</gui><gui>Boil…</gui></guiseq> or
     <keyseq><key>Ctrl</key>
     <key>B</key></keyseq>.</p>
  <steps><item><p>Fill the <code>kettle</code>.</p></item><item><p>Wait.</p></item></steps>
  <section id="cold"><title>Cold &amp; iced</title><note><p>Use ice.</p></note>
    <screen>boil --no  wait</screen>
    <table><thead><tr><td><p>Tea</p></td><td><p>Minutes</p></td></tr></thead>
      <tr><td><p>Green</p></td><td><p>2</p></td></tr></table>
    <links type="topic"/></section>
</page>"""

DOCBOOK = """<?xml version="1.0"?>
<!DOCTYPE article PUBLIC "-//OASIS//DTD DocBook XML V4.1.2//EN" "http://www.oasis-open.org/docbookx.dtd" [
  <!ENTITY legal SYSTEM "legal.xml">
  <!ENTITY app "<application>Kettle</application>">
  <!ENTITY appversion "2.1">
]>
<article><articleinfo><title>&app; manual</title><author><firstname>A.</firstname></author></articleinfo>
  &legal;
  <sect1 id="boil"><title>Boiling</title><indexterm><primary>steam</primary></indexterm>
    <para>With &app; &appversion; choose
      <menuchoice><shortcut><keycombo><keycap>Ctrl</keycap><keycap>B</keycap></keycombo></shortcut>
      <guimenu>File</guimenu><guimenuitem>Boil</guimenuitem></menuchoice>&nbsp;now; &Ctrl; stops it.</para>
    <variablelist><varlistentry><term>Lid</term>
      <listitem><para>Closes it.</para></listitem></varlistentry></variablelist>
    <informaltable><tgroup cols="2"><thead><row><entry>Tea</entry><entry>Minutes</entry></row></thead>
      <tbody><row><entry>Green</entry><entry>2</entry></row></tbody></tgroup></informaltable>
    <programlisting><![CDATA[boil(a < b);]]></programlisting></sect1>
</article>"""


def _passages(document: ParsedDocument) -> list[tuple[str, tuple[str, ...]]]:
    return [(passage.text, passage.headings) for passage in document.passages]


def _read(text: str, name: str) -> ParsedDocument:
    return parse_blob(Blob(text.encode(), name), ParseLimits())


@pytest.mark.parametrize("name", ["tea.page", "tea.xml", "tea"])
def test_a_page_of_mallard_has_its_steps_menus_and_sections(name: str) -> None:
    page = _read(MALLARD, name)
    assert (page.title, page.media_type) == ("お茶をいれる", "application/docbook+xml")
    title, cold = ("お茶をいれる",), ("お茶をいれる", "Cold & iced")
    assert _passages(page) == [
        ("Make tea with the Kettle.", title),
        ("Press File > Boil… or Ctrl+B.", title),
        ("1. Fill the kettle.", title),
        ("2. Wait.", title),
        ("Use ice.", cold),
        ("boil --no  wait", cold),
        ("Tea | Minutes\nGreen | 2", cold),
    ]


@pytest.mark.parametrize("name", ["kettle.docbook", "kettle.xml"])
def test_a_book_of_docbook_has_its_own_entities_and_no_index(name: str) -> None:
    book = _read(DOCBOOK, name)
    boiling = ("Kettle manual", "Boiling")
    assert (book.title, _passages(book)) == (
        "Kettle manual",
        [
            ("With Kettle 2.1 choose File > Boil > Ctrl+B now; Ctrl stops it.", boiling),
            ("Lid", boiling),
            ("Closes it.", boiling),
            ("Tea | Minutes\nGreen | 2", boiling),
            ("boil(a < b);", boiling),
        ],
    )


@pytest.mark.parametrize("name", ["one.docbook", "one.xml"])
def test_chapters_that_a_book_includes_are_read_without_a_declaration(name: str) -> None:
    sections = "".join(
        f"<sect1><title>S{at}</title><para>Text <keycombo>&Ctrl;<keycap>{at}</keycap></keycombo>.</para></sect1>"
        for at in range(2)
    )
    page = _read(f"<!-- $Id -->\n{sections}", name)
    assert _passages(page) == [("Text Ctrl+0.", ("S0",)), ("Text Ctrl+1.", ("S1",))]


def test_entities_that_multiply_end_early() -> None:
    declared = "".join(f'<!ENTITY a{at} "{f"&a{at - 1};" * 10 if at else "x" * 10}">' for at in range(10))
    book = f'<!DOCTYPE book PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "" [{declared}]><book><para>a {"&a9;" * 1_000}'
    assert len(_read(f"{book}</para></book>", "a.xml").passages[0].text) < 1_100_000


@pytest.mark.parametrize("damage", ["<p>open", "<section>" * 5_000 + "</section>" * 5_000])
def test_what_is_not_well_formed_is_read_as_text(damage: str) -> None:
    page = _read(f'<page xmlns="http://projectmallard.org/1.0/"><title>Tea</title>Leaves {damage}</page>', "a.page")
    assert "Leaves" in page.passages[0].text


def test_a_style_sheet_for_docbook_is_no_page_of_it() -> None:
    names = 'xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:d="http://docbook.org/ns/docbook"'
    sheet = f"<xsl:stylesheet {names}>a</xsl:stylesheet>"
    assert _read(sheet, "a.xsl").media_type == "text/plain"


@pytest.mark.parametrize("name", ["tea.fb2", "tea.xml"])
def test_a_fiction_book_has_its_title_chapters_and_notes(name: str) -> None:
    text = """<?xml version="1.0" encoding="windows-1251"?>
<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0" xmlns:l="http://www.w3.org/1999/xlink">
  <description><title-info><genre>sf</genre><author><first-name>A.</first-name></author>
    <book-title>Чай</book-title><annotation><p>About tea.</p></annotation></title-info>
    <document-info><id>1-2</id></document-info></description>
  <body><title><p>А. Автор</p><p>Чай</p></title>
    <section><title><p>Глава</p><p>первая</p></title>
      <p>Тёплый<a l:href="#n1" type="note">[1]</a> <emphasis>чай</emphasis>.</p>
      <subtitle>* * *</subtitle><poem><stanza><v>Пей</v><v>чай.</v></stanza></poem></section></body>
  <body name="notes"><section id="n1"><title><p>1</p></title><p>Не горячий.</p></section></body>
  <binary id="cover.jpg" content-type="image/jpeg">/9j/4AAQSkZJRgABAQ</binary>
</FictionBook>"""
    book = parse_blob(Blob(text.encode("cp1251"), name), ParseLimits())
    assert (book.title, book.media_type) == ("Чай", "application/x-fictionbook+xml")
    chapter = ("А. Автор Чай", "Глава первая")
    assert _passages(book) == [
        ("About tea.", ("Чай",)),
        *((line, chapter) for line in ("Тёплый[1] чай.", "* * *", "Пей", "чай.")),
        ("Не горячий.", ("А. Автор Чай", "1")),
    ]
