"""The tensors of a checkpoint directory: one safetensors file, or shards with an index."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.files import read_json

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What checkpoints hold and models compute in."""


class Source(Protocol):
    """Where a model takes its tensors from.

    Attributes:
        device: Where they are put.
        dtype: What products compute in: float32, bfloat16 or float16.
        elements: Of the tensors taken so far.
    """

    device: torch.device
    dtype: torch.dtype
    elements: int

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor in ``dtype`` on ``device``; it has ``shape``."""

    def stacked(self, rows: Mapping[str, int], columns: int) -> Tensor:
        """Several tensors [rows, columns] one below the other, as one."""

    def digest(self) -> bytes:
        """What tells the tensors taken so far from any others."""


class Outline:
    """Tensors without contents, on the meta device: what a model of some configuration would take.

    Attributes:
        shapes: Name and shape of each tensor taken, in that order.
    """

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        """An outline of weights in ``dtype``."""
        self.device = torch.device("meta")
        self.dtype = dtype
        self.elements = 0
        self.shapes: dict[str, tuple[int, ...]] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Note a tensor and give one of its shape."""
        self.shapes[name] = shape
        tensor = torch.empty(shape, dtype=self.dtype, device=self.device)
        self.elements += tensor.numel()
        return tensor

    def stacked(self, rows: Mapping[str, int], columns: int) -> Tensor:
        """Note several tensors and give one of their joint shape."""
        return torch.cat([self.take(name, count, columns) for name, count in rows.items()])

    def digest(self) -> bytes:
        """SHA-256 of names and shapes."""
        return hashlib.sha256(repr(self.shapes).encode()).digest()


class Weights:
    """The tensors of a checkpoint directory, read one by one as they are taken.

    Each file is mapped only while one of its tensors is copied, so no more of the checkpoint is in memory than the
    model and that tensor. Raises `VoxradixError` that names the file or tensor which is missing, unreadable or
    misshapen.
    """

    def __init__(
        self, directory: Path, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        """Look into the files of a checkpoint directory; tensors are to be put on ``device`` in ``dtype``."""
        self.device = device or torch.device("cpu")
        self.dtype = dtype
        self.elements = 0
        self._directory = directory
        self._contents = hashlib.sha256()
        self._where: dict[str, Path] = {}
        for path, names in _files(directory).items():
            with _opened(path) as file:
                held = set(file.keys())
            for name in held if names is None else names:
                if name not in held:
                    raise VoxradixError(f"{path} lacks tensor {name}, which the index says it holds")
                self._where[name] = path
        self._untaken = set(self._where)

    def take(self, name: str, *shape: int) -> Tensor:
        """Read a tensor in ``dtype``; it must have ``shape``."""
        tensor = torch.empty(shape, dtype=self.dtype, device=self.device)
        self._read(name, tensor)
        return tensor

    def stacked(self, rows: Mapping[str, int], columns: int) -> Tensor:
        """Read several tensors [rows, columns] into one, each straight to its place."""
        whole = torch.empty(sum(rows.values()), columns, dtype=self.dtype, device=self.device)
        for name, part in zip(rows, whole.split(list(rows.values())), strict=True):
            self._read(name, part)
        return whole

    def _read(self, name: str, place: Tensor) -> None:
        """Copy a tensor of the files, which must have the shape of its place; the file may change or go thereafter."""
        shape = tuple(place.shape)
        if name not in self._where:
            raise VoxradixError(
                f"{self._directory} holds no tensor {name}; the model needs it with shape {list(shape)}"
            )
        with _opened(self._where[name]) as file:
            try:
                tensor: Tensor = file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise VoxradixError(f"{self._directory}: tensor {name} cannot be read: {error}") from None
            if tuple(tensor.shape) != shape:
                raise VoxradixError(
                    f"{self._directory}: tensor {name} has shape {list(tensor.shape)}; "
                    f"config.json asks for {list(shape)}"
                )
            if tensor.dtype not in DTYPES:
                raise VoxradixError(
                    f"{self._directory}: tensor {name} is {tensor.dtype}; float32, bfloat16 or float16 load"
                )
            self._untaken.discard(name)
            self.elements += tensor.numel()
            self._contents.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            self._contents.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
            place.copy_(tensor)

    def digest(self) -> bytes:
        """SHA-256 of the tensors taken so far: names, types, shapes and contents, in the order they were taken."""
        return self._contents.digest()

    def leave(self, *prefixes: str) -> None:
        """Say that tensors with these prefixes are known and not needed (heads tied to an embedding)."""
        self._untaken = {name for name in self._untaken if not name.startswith(prefixes)}

    def warn_untaken(self) -> None:
        """Warn, by name, of tensors nothing has taken: the checkpoint may be of another model."""
        if self._untaken:
            names = ", ".join(sorted(self._untaken)[:5])
            warnings.warn(f"{self._directory}: {len(self._untaken)} tensors are not used: {names}", stacklevel=2)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        file = safe_open(path, framework="pt")
    except FileNotFoundError:
        raise VoxradixError(f"{path} {'cannot be opened' if path.exists() else 'does not exist'}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise VoxradixError(f"{path} is not a readable safetensors file: {error}") from None
    with file:
        yield file


def _files(directory: Path) -> dict[Path, list[str] | None]:
    """Each weight file with the tensors to read from it (None: all of them)."""
    if (directory / _SINGLE).exists():
        return {directory / _SINGLE: None}
    if not (directory / _INDEX).exists():
        raise VoxradixError(f"{directory} holds neither {_SINGLE} nor {_INDEX}")
    index = read_json(directory / _INDEX).get("weight_map")
    if not isinstance(index, dict):
        raise VoxradixError(f"{directory / _INDEX} has no weight_map object")
    files: dict[Path, list[str] | None] = {}
    for name, file in index.items():
        if not isinstance(file, str) or file in ("", ".", "..") or Path(file).name != file:
            raise VoxradixError(f"{directory / _INDEX}: tensor {name} is said to lie in {file!r}, not a file beside it")
        names = files.setdefault(directory / file, [])
        assert names is not None
        names.append(name)
    return files
