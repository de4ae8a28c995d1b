from __future__ import annotations

import pytest

from mcp_servers.knowledge.importing.number_formats import format_number

ACCOUNTING = '_($* #,##0.00_);_($* (#,##0.00);_($* "-"??_);_(@_)'


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (0.075, "0.0%", "7.5%"),
        (42, "0000", "0042"),
        (30.5 / 24, "[h]:mm", "30:30"),
        (1234567, "[$¥-411]#,##0", "¥1,234,567"),
        (1234567, '#,##0,"千円"', "1,235千円"),
        (12, 'General"名"', "12名"),
        (3, '"Day "0', "Day 3"),
        (-3, "#,##0;▲ #,##0", "▲ 3"),
        (-5, "#,##0;(#,##0)", "(5)"),
        (0, ACCOUNTING, "$-"),
        (1.2, ACCOUNTING, "$1.20"),
        (0, '[>=1]"有";"無"', "無"),
        (1.2, "# ?/?", "1 1/5"),
        (0.5, "?/?", "1/2"),
        (12000, "0.00E+00", "1.20E+04"),
        (1000001, "000-0000", "100-0001"),
        (9012345678, "000-0000-0000", "090-1234-5678"),
        (0, "#,###", "0"),
        (0.1 + 0.2, "General", "0.3"),
        (45000, '[$-411]ggge"年"m"月"d"日";@', "2023-03-15"),
        (45000.5, "yyyy/m/d h:mm", "2023-03-15 12:00"),
        (45000.5, "h:mm AM/PM", "12:00"),
        (-1, "yyyy/m/d", "-1"),
    ],
)
def test_a_number_is_written_as_its_cell_shows_it(value: float, code: str, text: str) -> None:
    assert format_number(value, code) == text


def test_dates_of_a_workbook_from_a_mac_are_counted_from_1904() -> None:
    assert format_number(43538, "yyyy-mm-dd", is_1904=True) == "2023-03-15"
