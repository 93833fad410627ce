"""Draws bar charts as SVG: one bar for each program, with a line from its least to its most sample."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from benchmarks.samples import Summary

WIDTH: Final = 720
NAME_WIDTH: Final = 230
VALUE_WIDTH: Final = 90
ROW_HEIGHT: Final = 28
BAR_HEIGHT: Final = 18
HEAD_HEIGHT: Final = 34
OWN_COLOUR, OTHER_COLOUR, LINE_COLOUR = "#1f6feb", "#8c959f", "#24292f"


def bar_chart(title: str, unit: str, summaries: Mapping[str, Summary]) -> str:
    """Return an SVG image with a bar for each program; the first program is the connector's."""
    longest = max(summary.most for summary in summaries.values())
    scale = (WIDTH - NAME_WIDTH - VALUE_WIDTH) / longest
    height = HEAD_HEIGHT + ROW_HEIGHT * len(summaries) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="22" font-weight="bold">{escape(title)} ({escape(unit)})</text>',
    ]
    for number, (name, summary) in enumerate(summaries.items()):
        colour = OTHER_COLOUR if number else OWN_COLOUR
        parts += _bar(name, summary, HEAD_HEIGHT + ROW_HEIGHT * number, scale, colour)
    return "\n".join([*parts, "</svg>", ""])


def _bar(name: str, summary: Summary, top: int, scale: float, colour: str) -> list[str]:
    middle = top + BAR_HEIGHT / 2
    left, right = (NAME_WIDTH + value * scale for value in (summary.least, summary.most))
    width = summary.median * scale
    return [
        f'<text x="{NAME_WIDTH - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{NAME_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>',
        f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" stroke="{LINE_COLOUR}"/>',
        f'<text x="{right + 6:.1f}" y="{middle + 4:.1f}">{summary.median:.4g}</text>',
    ]
