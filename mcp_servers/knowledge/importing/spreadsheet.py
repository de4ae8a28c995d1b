"""Excel (xlsx, and the XML of Excel 2003) -> passages: a table per sheet, with values as the sheet shows them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from xml.etree import ElementTree as ET

from mcp_servers.knowledge.importing.archives import (
    MAX_GAP,
    attribute,
    chart_table,
    elements_named,
    local_name,
    main_part,
    parse_part,
    parse_xml,
    relation_id,
    relations,
    text_lines,
    whole_number,
)
from mcp_servers.knowledge.importing.documents import Blob, DocumentBuilder, label_of
from mcp_servers.knowledge.importing.number_formats import BUILT_IN, format_number, general_text

_RANGE = re.compile(r"([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})")
# A merge may be declared for a million cells; its value is repeated in this many.
_MAX_MERGED, _MAX_MERGES = 2_000, 20_000
# Characters that XML does not have.
_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
_Styles = list[str]
_TRUE = frozenset({"1", "true", "on"})


def read_workbook(archive: zipfile.ZipFile, builder: DocumentBuilder, _blob: Blob) -> tuple[str, list[str]]:
    """Read the sheets in their order, each with its comments, text boxes and titles of charts; return no title."""
    names = archive.namelist()
    main = main_part(archive, "xl/workbook.xml")
    workbook, parts = parse_part(archive, main), relations(archive, main)
    # Some programs leave these two out of the relations.
    usual = {"sharedStrings": "xl/sharedStrings.xml", "styles": "xl/styles.xml"}
    by_kind = usual | {kind: target for kind, target in parts.values() if target in names}
    shared, styled = by_kind["sharedStrings"], by_kind["styles"]
    strings = [_plain(item) for item in elements_named(parse_part(archive, shared), "si")] if shared in names else []
    style_sheet = parse_part(archive, styled) if styled in names else ET.Element("styleSheet")
    codes = {
        whole_number(number_format.get("numFmtId", ""), 0): number_format.get("formatCode", "")
        for number_format in elements_named(style_sheet, "numFmt")
    }
    # The number format code of each cell style.
    cell_formats = next(elements_named(style_sheet, "cellXfs"), ())
    used = [whole_number(cell_format.get("numFmtId", ""), 0) for cell_format in cell_formats]
    styles = [codes.get(number) or BUILT_IN.get(number, "General") for number in used]
    properties = next(elements_named(workbook, "workbookPr"), None)
    is_1904 = properties is not None and properties.get("date1904", "") in {"1", "true", "on"}
    text_of = partial(_cell_text, strings=strings, styles=styles, is_1904=is_1904)
    read: set[str] = set()
    for sheet in elements_named(workbook, "sheet"):
        _, part = parts.get(relation_id(sheet), ("", ""))
        if part in read:
            continue
        read.add(part)
        name = sheet.get("name", "")
        if sheet.get("state") in {"hidden", "veryHidden"} and builder.hidden.leaves_out(f"sheet {name}"):
            continue
        builder.heading(2, name)
        if part not in names:
            continue
        tree = parse_part(archive, part)
        builder.add_table(_rows(tree, text_of, lambda kind, name=name: builder.hidden.leaves_out(f"{kind} of {name}")))
        related = sorted(relations(archive, part).values())
        has_threads = any(kind == "threadedComment" for kind, _ in related)
        for kind, target in related:
            if kind in {"comments", "threadedComment", "drawing"} and target in names:
                tree = parse_part(archive, target)
                # Without the copies of threads, in which Excel tells older versions to be renewed.
                authors = elements_named(tree, "author") if kind == "comments" and has_threads else ()
                copied = {str(at) for at, author in enumerate(authors) if (author.text or "").startswith("tc=")}
                for comments in list(elements_named(tree, "commentList")):
                    for comment in [comment for comment in comments if comment.get("authorId") in copied]:
                        comments.remove(comment)
                builder.add(text_lines(tree))
                # What a chart shows are cells of the sheets.
                for drawn, chart in sorted(relations(archive, target).values()):
                    if drawn == "chart" and chart in names:
                        builder.add(chart_table(archive, chart)[0])
    return "", []


def read_flat_workbook(blob: Blob, builder: DocumentBuilder) -> str:
    """Read a workbook in one XML file, as Excel 2003 and many other programs write it; return no title."""
    root = parse_xml(blob.content, blob.name)
    formats = {
        attribute(style, "ID"): attribute(number_format, "Format")
        for style in elements_named(root, "Style")
        for number_format in elements_named(style, "NumberFormat")
    }
    for sheet in elements_named(root, "Worksheet"):
        name = attribute(sheet, "Name")
        is_hidden = any(visible.text != "SheetVisible" for visible in elements_named(sheet, "Visible"))
        if is_hidden and builder.hidden.leaves_out(f"sheet {name}"):
            continue
        builder.heading(2, name)
        rows: list[list[str]] = []
        # Column -> rows that a cell above still covers, and its text.
        above: dict[int, tuple[int, str]] = {}
        for row in elements_named(sheet, "Row"):
            cells: list[str] = []
            below: dict[int, tuple[int, str]] = {}
            for cell in (child for child in row if local_name(child) == "Cell"):
                at = min(whole_number(attribute(cell, "Index"), len(cells) + 1) - 1, len(cells) + MAX_GAP)
                cells += [above.get(column, (0, ""))[1] for column in range(len(cells), at)]
                data = next((child for child in cell if local_name(child) == "Data"), None)
                kind, text = ("", "") if data is None else (attribute(data, "Type"), "".join(data.itertext()))
                if kind == "Boolean":
                    text = "TRUE" if text == "1" else "FALSE"
                elif kind == "DateTime":
                    text = text.partition(".")[0].removesuffix("T00:00:00").replace("T", " ")
                elif kind == "Number":
                    code = formats.get(attribute(cell, "StyleID"), "")
                    code = "0.00%" if code == "Percent" else code
                    with suppress(ValueError):
                        text = format_number(float(text), code) if "0" in code else general_text(float(text))
                across, down = (whole_number(attribute(cell, f"Merge{way}"), 0) for way in ("Across", "Down"))
                if down:
                    below[len(cells)] = down, label_of(text)
                cells += [text, *[label_of(text)] * min(across, MAX_GAP)]
            above = {column: (left - 1, text) for column, (left, text) in above.items() if left > 1} | below
            if not (attribute(row, "Hidden") in _TRUE and any(cells) and builder.hidden.leaves_out(f"rows of {name}")):
                rows.append(cells)
        builder.add_table(rows)
        for comment in elements_named(sheet, "Comment"):
            builder.add("".join(comment.itertext()))
    return ""


def _rows(
    sheet: ET.Element, text_of: Callable[[ET.Element], str], leaves_out: Callable[[str], bool]
) -> Iterator[list[str]]:
    """Yield the rows; ``leaves_out`` is asked about hidden ``rows`` and ``columns`` that have text."""
    # Row -> merged ranges (left, top, right, bottom) that cover it.
    merges: dict[int, list[tuple[int, int, int, int]]] = {}
    for merge in islice(elements_named(sheet, "mergeCell"), _MAX_MERGES):
        if match := _RANGE.fullmatch(merge.get("ref", "")):
            left, top, right, bottom = _column(match[1]), int(match[2]), _column(match[3]), int(match[4])
            is_small = (right - left + 1) * (bottom - top + 1) <= _MAX_MERGED
            for row_number in range(top, bottom + 1) if is_small else ():
                merges.setdefault(row_number, []).append((left, top, right, bottom))
    hidden = [
        (whole_number(column.get("min", ""), 0), whole_number(column.get("max", ""), 0))
        for column in elements_named(sheet, "col")
        if column.get("hidden") in _TRUE
    ]
    values: dict[tuple[int, int], str] = {}
    number = 0
    for row in elements_named(sheet, "row"):
        number = whole_number(row.get("r", ""), 0) or number + 1
        cells: list[str] = []
        before = 0
        # Position of each written cell: gaps are shortened.
        columns: dict[int, int] = {}
        for cell in row:
            if local_name(cell) != "c":
                continue
            column = _column("".join(re.findall("^[A-Z]*", cell.get("r", "")))) or before + 1
            # Cells without content are left out of the file.
            cells += [""] * min(column - 1 - max(len(cells), before), MAX_GAP)
            before = column
            columns[column] = len(cells)
            text = text_of(cell)
            is_hidden = text and any(first <= column <= last for first, last in hidden)
            cells.append("" if is_hidden and leaves_out("columns") else text)
        merged = _with_merged(cells, columns, number, merges.get(number, []), values)
        if not (row.get("hidden") in _TRUE and any(cells) and leaves_out("rows")):
            yield merged


def _with_merged(
    cells: list[str],
    columns: dict[int, int],
    row: int,
    merges: list[tuple[int, int, int, int]],
    values: dict[tuple[int, int], str],
) -> list[str]:
    """Return a row with the value of a merged range in each cell that it covers; a title is written once."""
    filled = [cell for cell in cells if cell]
    for left, top, right, bottom in merges:
        if row == top:
            values[left, top] = label_of(cells[columns[left]]) if left in columns else ""
            if bottom == top and len(filled) <= 1:
                continue
        text = values.get((left, top), "")
        for column in range(left, right + 1):
            at = columns.get(column)
            if at is None and text and column - 1 <= len(cells) + MAX_GAP:
                cells += [""] * (column - len(cells))
                at = column - 1
            if at is not None and at < len(cells) and not cells[at]:
                cells[at] = text
    return cells


def _column(letters: str) -> int:
    """Return the number of a column from 1; 0 without letters."""
    column = 0
    for letter in letters[:3]:
        column = column * 26 + ord(letter) - 64
    return column


def _cell_text(cell: ET.Element, strings: list[str], styles: _Styles, *, is_1904: bool) -> str:
    kind, value = cell.get("t", "n"), next((child for child in cell if local_name(child) == "v"), None)
    if kind == "inlineStr":
        return _plain(cell)
    text = (value.text or "") if value is not None else ""
    if kind == "s" and text:
        at = whole_number(text, -1)
        return strings[at] if 0 <= at < len(strings) else ""
    if not text:
        # A program that only writes files leaves the values of formulas to Excel.
        formula = next((child.text for child in cell if local_name(child) == "f"), None)
        return f"={formula}" if formula else ""
    if kind == "b":
        return "TRUE" if text == "1" else "FALSE"
    if kind == "d":
        return text.removesuffix("T00:00:00").replace("T", " ")
    if kind != "n":
        return text
    style = whole_number(cell.get("s", ""), 0)
    code = styles[style] if 0 <= style < len(styles) else "General"
    try:
        value = float(text)
    except ValueError:
        return text
    return general_text(value) if code == "General" else format_number(value, code, is_1904=is_1904)


def _plain(element: ET.Element) -> str:
    """Return the text of a string, without the reading above it, and with a raised digit after ``^``."""
    readings = {id(inner) for ruby in elements_named(element, "rPh") for inner in ruby.iter()}
    raised = {
        id(inner)
        for run in elements_named(element, "r")
        if any(alignment.get("val") == "superscript" for alignment in elements_named(run, "vertAlign"))
        for inner in run.iter()
    }
    text = ""
    for text_run in elements_named(element, "t"):
        if id(text_run) not in readings and text_run.text:
            is_power = id(text_run) in raised and text_run.text[0].isdecimal() and text[-1:].isalnum()
            text += f"^{text_run.text}" if is_power else text_run.text
    return _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
