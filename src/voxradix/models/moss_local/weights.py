"""The tensors of a checkpoint directory: one safetensors file, or shards with an index."""

from __future__ import annotations

import hashlib
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.files import read_json

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Weights:
    """Named tensors, read one by one as they are taken; a context manager that holds the files open.

    Raises `VoxradixError` that names the file or tensor which is missing, unreadable or misshapen.
    """

    def __init__(self, directory: Path) -> None:
        """Open the files of a checkpoint directory."""
        self._files = ExitStack()
        self._where: dict[str, Any] = {}
        self._untaken: set[str] = set()
        self.elements = 0  # of the tensors taken so far
        self._contents = hashlib.sha256()
        self._directory = directory
        with ExitStack() as guard:
            guard.callback(self._files.close)
            for path, names in _files(directory).items():
                file = self._open(path)
                held = set(file.keys())
                for name in held if names is None else names:
                    if name not in held:
                        raise VoxradixError(f"{path} lacks tensor {name}, which the index says it holds")
                    self._where[name] = file
            self._untaken = set(self._where)
            guard.pop_all()

    def __enter__(self) -> Weights:
        """Hold the files open until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._files.close()

    def take(self, name: str, *shape: int) -> Tensor:
        """Read a tensor as float32; it must have ``shape``."""
        if name not in self._where:
            raise VoxradixError(
                f"{self._directory} holds no tensor {name}; the model needs it with shape {list(shape)}"
            )
        try:
            tensor: Tensor = self._where[name].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise VoxradixError(f"{self._directory}: tensor {name} cannot be read: {error}") from None
        if tuple(tensor.shape) != shape:
            raise VoxradixError(
                f"{self._directory}: tensor {name} has shape {list(tensor.shape)}; config.json asks for {list(shape)}"
            )
        if tensor.dtype not in _DTYPES:
            raise VoxradixError(
                f"{self._directory}: tensor {name} is {tensor.dtype}; float32, bfloat16 or float16 load"
            )
        self._untaken.discard(name)
        self.elements += tensor.numel()
        self._contents.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        self._contents.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
        return tensor.to(torch.float32, copy=True)  # its own memory: the file may change or go

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

    def _open(self, path: Path) -> Any:
        try:
            return self._files.enter_context(safe_open(path, framework="pt"))
        except FileNotFoundError:
            raise VoxradixError(f"{path} does not exist") from None
        except (SafetensorError, OSError, ValueError) as error:
            raise VoxradixError(f"{path} is not a readable safetensors file: {error}") from None


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
