from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests import checkpoints
from voxradix.voice import Voice, load_voice

SIZES = checkpoints.Sizes()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """The suite's models are small: more threads only wait for each other. Exactness tests set their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    """A small random voice that never stops by itself in greedy mode."""
    return load_voice(checkpoints.write(tmp_path_factory.mktemp("endless"), SIZES))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small random checkpoint directory, to be damaged."""
    return checkpoints.write(tmp_path / "checkpoint", SIZES)
