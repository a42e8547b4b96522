"""Loading MOSS-Audio-Tokenizer-v2 from a directory, with the code it brings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from voxradix.audio.moss import MossCodec
from voxradix.errors import VoxradixError
from voxradix.files import read_json

_INTERFACE = ("decode", "batch_encode", "streaming", "_set_streaming_exec_mask", "_decode_frame")
_SETTINGS = ("sampling_rate", "downsample_rate", "number_channels", "quantizer_kwargs")


def load_moss_codec(
    directory: Path,
    *,
    codebooks: int,
    trust_remote_code: bool = False,
    device: torch.device | str = "cpu",
    slots: int = 16,
) -> MossCodec:
    """Load the codec in a directory, with float32 weights, for a model with so many codebooks.

    The codec's class is Python code in the directory, which runs with all the caller's rights; it is neither
    imported nor run unless ``trust_remote_code``. ``slots`` streams may be open at once. Raises `VoxradixError`
    without that trust, without transformers, and when the directory does not hold such a codec.
    """
    reference = _class_reference(directory)
    if not trust_remote_code:
        raise VoxradixError(
            f"the codec in {directory} is run by its own code, {reference} in {_python_files(directory)}; read it "
            "and, if you trust it, allow it with --trust-remote-code (in Python, trust_remote_code=True)"
        )
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError:
        raise VoxradixError(
            f'the codec in {directory} is loaded through transformers: pip install "voxradix[moss]"'
        ) from None
    local = {"trust_remote_code": True, "local_files_only": True}
    try:
        config = AutoConfig.from_pretrained(directory, **local)
        # the class converts its weights to what its config names, and the public processor names this
        config.codec_weight_dtype = "fp32"
        with _no_bar():
            model: Any = AutoModel.from_pretrained(
                directory, config=config, dtype=torch.float32, use_safetensors=True, **local
            )
    except Exception as error:  # the directory's code may raise anything
        raise VoxradixError(f"the codec in {directory} cannot be loaded: {_first_line(error)}") from error
    missing = [name for name in _INTERFACE if not hasattr(model, name)]
    missing += [name for name in _SETTINGS if not hasattr(config, name)]
    if missing:
        raise VoxradixError(f"{reference} in {directory} lacks {missing[0]!r}; it is no MOSS-Audio-Tokenizer-v2")
    _check_whole(directory, model)
    return MossCodec(model.eval().requires_grad_(False).to(device), codebooks, slots=slots)


@contextmanager
def _no_bar() -> Iterator[None]:
    """transformers draws a bar while it copies weights, terminal or not; a command's standard error is for messages."""
    from transformers.utils import logging

    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()


def _class_reference(directory: Path) -> str:
    """The name of the codec's class in the directory's own code, as config.json has it; no other code may be named."""
    classes = read_json(directory / "config.json").get("auto_map")
    if not isinstance(classes, dict) or not isinstance(classes.get("AutoModel"), str):
        raise VoxradixError(f"{directory / 'config.json'} names no class in auto_map.AutoModel; it is no such codec")
    for reference in classes.values():
        name = reference if isinstance(reference, str) else ""
        if "--" in name or not (directory / f"{name.partition('.')[0]}.py").is_file():
            raise VoxradixError(f"{directory} names the class {reference!r}, whose code is not in the directory")
    return str(classes["AutoModel"])


def _python_files(directory: Path) -> str:
    return ", ".join(sorted(path.name for path in directory.glob("*.py")))


def _check_whole(directory: Path, model: torch.nn.Module) -> None:
    """Refuse weights that hold fewer numbers than the codec has: transformers draws what lacks at random and goes on.

    Which they are cannot be told by names, which the directory's own code may change; transformers' report, on standard
    error, names them.
    """
    held = 0
    for path in directory.glob("*.safetensors"):
        try:
            with safe_open(path, "pt") as file:
                held += sum(torch.Size(file.get_slice(name).get_shape()).numel() for name in file.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise VoxradixError(f"{path} cannot be read: {error}") from None
    needed = sum(parameter.numel() for parameter in model.parameters())
    if held < needed:
        raise VoxradixError(f"the weights in {directory} hold {held} numbers and the codec needs {needed}")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
