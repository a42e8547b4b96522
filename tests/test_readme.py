"""The code in README and docs runs, and its values are what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
BLOCKS = [
    block
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.name != "serving.md"  # it needs a server: tests/test_serving_page.py
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_python_block_of_the_pages_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(BLOCKS[number], f"block {number}", "exec"), names)
    if "samples" in names:
        samples = names["samples"]
        assert isinstance(samples, torch.Tensor) and samples.abs().max() > 0.1


def test_values_shown_after_a_line_are_its_values() -> None:
    shown = 0
    for block in BLOCKS:
        if "# tensor(" not in block:
            continue
        names: dict[str, object] = {}
        for line in block.splitlines():
            code, _, value = line.partition("  # ")
            if value.startswith("tensor("):
                shown += 1
                assert str(eval(code, names)) == value
            elif not line.startswith((" ", "for ")):
                exec(code, names)
    assert shown
