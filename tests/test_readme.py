"""The README's own code runs, and its values are what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_python_block_of_the_readme_runs(number: int) -> None:
    names: dict[str, object] = {}
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), names)
    if "samples" in names:
        samples = names["samples"]
        assert isinstance(samples, torch.Tensor) and samples.abs().max() > 0.1


def test_values_the_readme_shows_after_a_line_are_its_values() -> None:
    shown = 0
    for block in BLOCKS:
        names: dict[str, object] = {}
        for line in block.splitlines():
            code, _, value = line.partition("  # ")
            if value.startswith("tensor("):
                shown += 1
                assert str(eval(code, names)) == value
            elif not line.startswith((" ", "for ")):
                exec(code, names)
    assert shown
