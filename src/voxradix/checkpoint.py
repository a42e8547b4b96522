"""A checkpoint: the files of a voice, found by name, in a directory or on the hub.

What differs between voices is said by files in the directory: config.json and weights (the model), tokenizer.json,
generation_config.json (sampling defaults), voice.json (front end, prompt template, codec, what it was trained for).
A released checkpoint has no voice.json and takes the released model's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from tokenizers import Tokenizer

from voxradix import hub
from voxradix.audio import Codec, load_codec, load_moss_codec
from voxradix.device import named_device, named_dtype
from voxradix.errors import VoxradixError
from voxradix.files import is_directory, read_json
from voxradix.models.moss_local import MossLocalConfig, read_config
from voxradix.sampling import Draw, Sampling

_BUNDLED = Path(__file__).parent / "voices"
_MAX_FRAMES = 4096
"""The released model's budget: its card's ``max_new_tokens``, 5.5 minutes at 12.5 frames a second."""


def bundled_voices() -> list[str]:
    """The names of the voices in the package."""
    return sorted(path.parent.name for path in _BUNDLED.glob("*/voice.json"))


@dataclass(frozen=True)
class Checkpoint:
    """The files of a voice. Nothing is loaded before it is asked for; what cannot be used raises `VoxradixError`.

    Attributes:
        name: The bundled voice's name, the directory's, or the hub's.
        directory: Where the files are.
        bundled: Whether it came with the package.
        settings: The parsed voice.json, empty without one.
        codec: A codec's directory or name on the hub, in place of the one the checkpoint names.
        offline: Whether the hub must not be asked.
        trust_remote_code: Whether code that lies beside a codec's weights may run.
    """

    name: str
    directory: Path
    bundled: bool
    settings: Mapping[str, object]
    codec: str | None
    offline: bool
    trust_remote_code: bool

    @cached_property
    def config(self) -> MossLocalConfig:
        """The model's configuration."""
        return read_config(self.directory)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. It knows no added token: the string of one is text like any other."""
        path = self.directory / "tokenizer.json"
        if not path.is_file():
            raise VoxradixError(f"{self.directory} has no tokenizer.json; without one, give prompt rows, not text")
        try:
            tokenizer = Tokenizer.from_str(json.dumps({**read_json(path), "added_tokens": []}))
        except VoxradixError:
            raise
        except Exception as error:  # the library raises a bare Exception
            raise VoxradixError(f"{path} is not a readable tokenizer: {error}") from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None):
            raise VoxradixError(f"{path} has a dropout, so a text would have another prompt each time; set it to null")
        largest, vocab = max(tokenizer.get_vocab().values(), default=0), self.config.backbone.vocab
        if largest >= vocab:
            raise VoxradixError(f"{path} has ids up to {largest}, and config.json a vocab_size of {vocab}")
        return tokenizer

    @cached_property
    def sampling(self) -> Sampling:
        """How frames are drawn unless a request says otherwise: the model card's values where nothing is said."""
        card = Sampling()

        def draw(prefix: str, default: Draw) -> Draw:
            return Draw(
                temperature=self._number(f"{prefix}_temperature", default.temperature),
                top_p=self._number(f"{prefix}_top_p", default.top_p),
                top_k=self._whole(f"{prefix}_top_k", default.top_k, least=0),
            )

        try:
            penalty = self._number("audio_repetition_penalty", card.repetition_penalty)
            return Sampling(draw("text", card.stop), draw("audio", card.codes), penalty)
        except VoxradixError as error:
            raise VoxradixError(f"{self._generation}: {error}") from None

    @cached_property
    def max_frames(self) -> int:
        """The frames a request may have unless it says otherwise."""
        try:
            return self._whole("max_new_frames", _MAX_FRAMES, least=1)
        except VoxradixError as error:
            raise VoxradixError(f"{self._generation}: {error}") from None

    def place(self, device: str | None, dtype: str | None) -> tuple[torch.device, torch.dtype]:
        """Where its model computes and in what: as named, else a GPU where there is one, a bundled voice on the CPU."""
        where = named_device("cpu" if device is None and self.bundled else device)
        return where, named_dtype(dtype, where)

    def load_codec(self, device: torch.device) -> Codec:
        """Load the codec: the one that was named, else the voice's own, else the one config.json names."""
        own = self._own_codec()
        if own is not None:
            return load_codec(own)
        self.check_codec()
        place = self._foreign_codec()
        return load_moss_codec(
            place if isinstance(place, Path) else hub.fetch(place, hub.CODEC_FILES, offline=self.offline),
            codebooks=self.config.codebooks,
            trust_remote_code=self.trust_remote_code,
            device=device,
        )

    def check_codec(self) -> None:
        """Raise `VoxradixError` now if `load_codec` would find no codec, or one whose code the user has not allowed."""
        if self._own_codec() is None and (place := self._foreign_codec()) and not self.trust_remote_code:
            raise VoxradixError(
                f"the codec {place} is run by Python code that lies beside its weights; read that and, if you trust "
                "it, allow it with --trust-remote-code (in Python, trust_remote_code=True)"
            )

    @property
    def has_own_codec(self) -> bool:
        """Whether the codec is one of this package's own kinds, in the voice's directory."""
        return self._own_codec() is not None

    def _own_codec(self) -> Path | None:
        """The directory of the voice's own codec; None when it has none, or another one was named."""
        own = self.settings.get("codec")
        if self.codec is not None or own is None:
            return None
        if not isinstance(own, str) or own in ("", ".", "..") or Path(own).name != own or "\0" in own:
            raise VoxradixError(f"{self.directory / 'voice.json'}: codec is {own!r}; it must be a directory in it")
        return self.directory / own

    def _foreign_codec(self) -> Path | str:
        """The directory, or the name on the hub, of a codec that brings its own code.

        What config.json names is looked for in the checkpoint's directory, never in the current one, whose files the
        user has not asked for.
        """
        name, home = (self.codec, Path()) if self.codec is not None else (self._named_codec(), self.directory)
        if name and is_directory(home / name):
            return (home / name).resolve()
        if not hub.is_hub_name(name):
            raise VoxradixError(f"the codec {name!r} is neither a directory nor a name on the hub (owner/name)")
        return name

    def _named_codec(self) -> str:
        path = self.directory / "config.json"
        name = read_json(path).get("audio_tokenizer_name_or_path")
        if not isinstance(name, str) or not name:
            raise VoxradixError(
                f"{self.directory} names no codec, in voice.json or as audio_tokenizer_name_or_path in config.json, so "
                "its frames cannot be made sound; name one with --codec"
            )
        return name

    @property
    def _generation(self) -> Path:
        return self.directory / "generation_config.json"

    @cached_property
    def _defaults(self) -> Mapping[str, object]:
        return read_json(self._generation) if self._generation.exists() else {}

    def _number(self, name: str, default: float) -> float:
        value = self._defaults.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
            raise VoxradixError(f"{name} is {value!r}; it must be a finite number")
        return float(value)

    def _whole(self, name: str, default: int, *, least: int) -> int:
        value = self._number(name, default)
        if value != int(value) or value < least:
            raise VoxradixError(f"{name} is {value:g}; it must be a whole number of at least {least}")
        return int(value)


def find_checkpoint(
    name: str | Path,
    *,
    revision: str | None = None,
    offline: bool = False,
    codec: str | None = None,
    trust_remote_code: bool = False,
) -> Checkpoint:
    """Find a bundled voice by name, a checkpoint directory by path, or a checkpoint on the hub as "owner/name".

    The hub's files are fetched, those that are needed and not there yet; ``revision`` is a branch, tag or commit
    there. Raises `VoxradixError` when there is no such checkpoint.
    """
    if not isinstance(name, str | Path) or not str(name):
        raise VoxradixError(f"the voice is {name!r}; it must be a bundled voice's name or a checkpoint directory")
    if codec is not None and not isinstance(codec, str):
        raise VoxradixError(f"the codec is {codec!r}; it must be a directory or a name on the hub")
    bundled = isinstance(name, str) and name in bundled_voices()
    directory = _BUNDLED / name if bundled else Path(name)
    title = str(name)
    if is_directory(directory):
        title = directory.resolve().name
        if revision is not None:
            raise VoxradixError(f"revision is {revision!r}, but {directory} is a directory; only the hub has revisions")
    elif hub.is_hub_name(title):
        directory = hub.fetch(title, hub.MODEL_FILES, revision=revision, offline=offline)
    else:
        known = ", ".join(bundled_voices())
        raise VoxradixError(
            f"{title!r} is neither a bundled voice ({known}) nor a checkpoint directory, nor a name on the hub "
            "(owner/name)"
        )
    settings = read_json(directory / "voice.json") if (directory / "voice.json").exists() else {}
    return Checkpoint(title, directory, bundled, settings, codec, offline, trust_remote_code)
