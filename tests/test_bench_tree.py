"""The figures of the tree: there for every size, and a table of them."""

from __future__ import annotations

import sys
from dataclasses import astuple
from io import StringIO

import pytest
from rich.console import Console

from voxradix.cli.bench_tree import KV_BYTES, Speeds, TreeFigures, tree_figures, tree_table


def printed(figures: list[TreeFigures]) -> str:
    out = StringIO()
    tree_table(figures, Console(file=out, width=120))
    return out.getvalue()


def test_every_size_has_figures_and_a_missing_engine_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sglang", None)
    figures = tree_figures([300, 1000])
    assert [row.rows for row in figures] == [300, 1000]
    assert all(speed > 0 for row in figures for speed in astuple(row.speeds))
    text = printed(figures)
    assert "1,000" in text and "evict" in text
    assert "SGLang cannot be imported" in text


def test_a_cached_row_costs_under_a_hundredth_of_its_keys_and_values_however_it_is_split() -> None:
    (row,) = tree_figures([5000])
    assert row.plain_bytes < row.split_bytes < KV_BYTES / 100


def test_figures_of_two_engines_stand_side_by_side() -> None:
    text = printed([TreeFigures(1000, Speeds(30.0, 20.0, 10.0, 5.0), Speeds(10.0, 10.0, 10.0, 10.0), 50.0, 900.0)])
    assert [line.split("│")[5].strip() for line in text.splitlines() if "│ 1,000 │" in line and "%" not in line] == [
        "3.0",
        "2.0",
        "1.0",
        "0.5",
    ]
    assert "cannot be imported" not in text
