"""The table for people, the page of the documentation and the JSON for programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.rows import TIMES, Figure, Row

HEADINGS: Final = ("row", "what", "value (best)", "reference (best)", "ratio (best)", "budget", "met")
MISSED: Final = "NO"
FOOTNOTE: Final = (
    "Usual figures are medians; the best is the minimum, or the maximum of a rate. A budget is compared with the "
    "usual one."
)


def table(rows: Sequence[Row]) -> str:
    """Return the aligned table; under a row that misses its budget, what limits it."""
    cells = [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in [HEADINGS, *cells]) for column in range(len(HEADINGS))]
    lines = [_aligned(HEADINGS, widths), "  ".join("-" * width for width in widths)]
    for row, line in zip(rows, cells, strict=True):
        lines.append(_aligned(line, widths))
        if row.is_met is False and row.limited_by:
            lines.append(f"{'':{widths[0]}}  ^ {row.limited_by}")
    return "\n".join([*lines, "", FOOTNOTE])


def page(rows: Sequence[Row], machine: Mapping[str, object], failed: Mapping[str, str]) -> str:
    """Return the page about performance: every row, where and when it was measured, and what limits what is missed."""
    lines = [
        "# Performance",
        "",
        "`make bench` writes this page; do not edit it. " + FOOTNOTE,
        "Ratios are to a reference that was measured in turns with the value, on the same machine.",
        "",
        *(f"- {name}: {value}" for name, value in _circumstances(machine)),
        "",
        "| " + " | ".join(HEADINGS[1:]) + " |",
        "|" + "---|" * len(HEADINGS[1:]),
        *("| " + " | ".join(_cells(row)[1:]) + " |" for row in rows),
    ]
    if missed := [row for row in rows if row.is_met is False]:
        lines += ["", "## What limits what misses its budget", ""]
        lines += [f"- **{row.what}**: {row.limited_by or 'not known'}." for row in missed]
    if failed:
        lines += ["", "## What could not be measured", ""]
        lines += [f"- {name}: {reason}" for name, reason in failed.items()]
    return "\n".join([*lines, ""])


def _circumstances(machine: Mapping[str, object]) -> Sequence[tuple[str, str]]:
    load, cores, synced = machine["load"], machine["cores"], machine["fdatasync_us"]
    is_busy = isinstance(load, float) and isinstance(cores, int) and load > cores / 2
    usual = synced["usual"] if isinstance(synced, dict) else synced
    note = ": **other programs were running, so that every time is longer than it would be alone**" if is_busy else ""
    return (
        ("measured", str(machine["at"])),
        ("machine", f"{cores} cores, {machine['system']}, {machine['file_system']}, fdatasync {usual} µs"),
        ("with", f"Python {machine['python']}, SQLite {machine['sqlite']}, {machine['messages']:,} stored messages"),
        ("load when it began", f"{load:.1f}{note}"),
    )


def as_json(rows: Sequence[Row], machine: Mapping[str, object], failed: Mapping[str, str]) -> dict[str, object]:
    """Return the run as JSON; figures are in the row's unit."""
    return {"machine": dict(machine), "rows": [_entry(row) for row in rows], "failed": dict(failed)}


def _entry(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "what": row.what,
        "unit": row.unit.value,
        "value": _pair(row.value, row.unit.factor),
        "reference_name": row.reference_name,
        "reference": _pair(row.reference, row.unit.factor),
        "ratio": _pair(row.ratio, 1.0),
        "budget": row.budget.text(row.unit) if row.budget else None,
        "met": row.is_met,
        "limited_by": row.limited_by if row.is_met is False else "",
    }


def _pair(figure: Figure | None, factor: float) -> dict[str, float] | None:
    if figure is None:
        return None
    return {"usual": round(figure.usual * factor, 4), "best": round(figure.best * factor, 4)}


def _cells(row: Row) -> tuple[str, ...]:
    reference = f"{row.reference_name} {_shown(row.reference, row)}" if row.reference else "-"
    ratio = f"{_number(row.ratio.usual)} {TIMES} ({_number(row.ratio.best)})" if row.ratio else "-"
    met = {True: "yes", False: MISSED, None: "-"}[row.is_met]
    budget = row.budget.text(row.unit) if row.budget else "-"
    return (row.name, row.what, _shown(row.value, row), reference, ratio, budget, met)


def _shown(figure: Figure, row: Row) -> str:
    usual, best = figure.usual * row.unit.factor, figure.best * row.unit.factor
    only = f"{_number(usual)} {row.unit}"
    return only if figure.usual == figure.best else f"{only} ({_number(best)})"


def _number(value: float) -> str:
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:,.{digits}f}"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
