"""The configuration of a MOSS-TTS Local checkpoint, read from its config.json in either layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from voxradix.errors import VoxradixError
from voxradix.files import read_json
from voxradix.rows import RowLayout

_MOST = 2**20
"""The largest size or id taken for real: more would be a mistake that asks for all memory."""

_HEAD_DIM = 128
"""What a Qwen3 config that does not say its ``head_dim`` means (`transformers.Qwen3Config`)."""

_MOST_PARTS = 1000
"""The most layers or codebooks taken for real."""


@dataclass(frozen=True)
class BackboneConfig:
    """The Qwen3 backbone: sizes, RMS epsilon and rotary base."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float
    rope_theta: float
    vocab: int
    positions: int


@dataclass(frozen=True)
class LocalConfig:
    """The local transformer that decodes one frame: GPT-2 style blocks with rotary positions."""

    layers: int
    hidden: int
    inner: int
    heads: int
    norm_eps: float
    rope_base: float

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


@dataclass(frozen=True)
class MossLocalConfig:
    """A whole checkpoint's configuration: its two transformers, codebooks and ids."""

    backbone: BackboneConfig
    local: LocalConfig
    codebooks: int
    codebook_size: int
    pad_code: int
    binary_stop_head: bool
    pad_id: int
    im_start_id: int
    im_end_id: int
    audio_start_id: int
    audio_end_id: int
    user_slot_id: int
    assistant_slot_id: int

    @property
    def layout(self) -> RowLayout:
        """The rows of this checkpoint. Keys fold into the wider band beside its special ids, below or above."""
        special = (
            self.pad_id,
            self.im_start_id,
            self.im_end_id,
            self.audio_start_id,
            self.audio_end_id,
            self.user_slot_id,
            self.assistant_slot_id,
        )
        vocab, first, after = self.backbone.vocab, min(special), max(special) + 1
        offset, space = (0, first) if first >= vocab - after else (after, vocab)
        return RowLayout(
            name="moss_tts_local",
            bounds=(vocab, *(self.pad_code + 1,) * self.codebooks),
            key_space=space,
            key_offset=offset,
            pad_code=self.pad_code,
            end_id=self.audio_end_id,
            end_key=self.audio_end_id,
        )


class _Fields:
    """A JSON object with typed, named access; ``where`` says whose fields they are in messages."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self.where = where

    def section(self, name: str) -> _Fields:
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise VoxradixError(f"{self.where} has no section {name}")
        return _Fields(value, f"{self.where}: {name}")

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number from 0 to `_MOST`."""
        return int(self._between(name, int, 0, _MOST, default))

    def positive(self, name: str, default: int | None = None, most: int = _MOST) -> int:
        """A count from 1 to ``most``."""
        return int(self._between(name, int, 1, most, default))

    def rate(self, name: str) -> float:
        """A number above 0, finite in float32."""
        return float(self._between(name, float, 1e-30, 1e30, None))

    def _between(self, name: str, kind: type, low: float, high: float, default: int | None) -> int | float:
        value = self._values.get(name)
        value = default if value is None else value
        if value is None:
            raise VoxradixError(f"{self.where} has no field {name}")
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            raise VoxradixError(f"{self.where}: {name} is {value!r}; it must be of type {kind.__name__}")
        if not low <= value <= high:
            raise VoxradixError(f"{self.where}: {name} is {value}; it must lie in {low} .. {high}")
        return value

    def only(self, name: str, *allowed: object, default: object) -> object:
        value = self._values.get(name, default)
        if value not in allowed:
            choices = " or ".join(repr(a) for a in allowed)
            raise VoxradixError(f"{self.where}: {name} is {value!r}; this model family needs {choices}")
        return value


def read_config(directory: Path) -> MossLocalConfig:
    """Read ``directory/config.json``; `VoxradixError` names the field that is missing or out of range."""
    path = directory / "config.json"
    top = _Fields(read_json(path), str(path))
    top.only("model_type", "moss_tts_local", default=None)
    local = top.section("gpt2_config")
    config = MossLocalConfig(
        backbone=_one_backbone(top),
        local=_local(local, top),
        codebooks=top.positive("n_vq", most=_MOST_PARTS),
        codebook_size=top.positive("audio_vocab_size"),
        pad_code=top.number("audio_pad_code" if top.has("audio_pad_code") else "audio_pad_token_id"),
        binary_stop_head=top.only("local_text_head_mode", "binary", "full_vocab", default="binary") == "binary",
        pad_id=top.number("pad_token_id"),
        im_start_id=top.number("im_start_token_id"),
        im_end_id=top.number("im_end_token_id"),
        audio_start_id=top.number("audio_start_token_id"),
        audio_end_id=top.number("audio_end_token_id"),
        user_slot_id=top.number("audio_user_slot_token_id"),
        assistant_slot_id=top.number("audio_assistant_slot_token_id"),
    )
    _check(config, str(path))
    return config


def _one_backbone(top: _Fields) -> BackboneConfig:
    """The backbone's configuration, which stands under one name or two; if two, they must say the same."""
    names = [name for name in ("language_config", "qwen3_config") if top.has(name)]
    read = [_backbone(top.section(name)) for name in names]
    if not read:
        raise VoxradixError(f"{top.where} has no section language_config or qwen3_config")
    if read[0] != read[-1]:
        raise VoxradixError(f"{top.where}: language_config and qwen3_config differ; they must say the same")
    return read[0]


def _backbone(text: _Fields) -> BackboneConfig:
    text.only("hidden_act", "silu", default="silu")
    text.only("attention_bias", False, default=False)
    text.only("use_sliding_window", False, default=False)
    heads = text.positive("num_attention_heads")
    return BackboneConfig(
        layers=text.positive("num_hidden_layers", most=_MOST_PARTS),
        hidden=text.positive("hidden_size"),
        inner=text.positive("intermediate_size"),
        heads=heads,
        kv_heads=text.positive("num_key_value_heads", heads),
        head_dim=text.positive("head_dim", _HEAD_DIM),
        rms_eps=text.rate("rms_norm_eps"),
        rope_theta=_theta(text),
        vocab=text.positive("vocab_size"),
        positions=text.positive("max_position_embeddings"),
    )


def _theta(text: _Fields) -> float:
    """The rotary base, which older writers put at the top and newer ones in ``rope_parameters``."""
    text.only("rope_scaling", None, {"rope_type": "default"}, default=None)
    places = [text]
    if text.has("rope_parameters"):
        rope = text.section("rope_parameters")
        rope.only("rope_type", "default", default="default")
        places.append(rope)
    thetas = [place.rate("rope_theta") for place in places if place.has("rope_theta")]
    if len(set(thetas)) != 1:
        raise VoxradixError(f"{text.where}: rope_theta is {thetas or 'nowhere'}; it must be one number")
    return thetas[0]


def _local(local: _Fields, top: _Fields) -> LocalConfig:
    local.only("activation_function", "silu", default=None)
    local.only("position_embedding_type", "rope", default=None)
    local.only("scale_attn_weights", True, default=True)
    hidden = local.positive("n_embd")
    return LocalConfig(
        layers=top.positive("local_transformer_layers", local.positive("n_layer", 1), most=_MOST_PARTS),
        hidden=hidden,
        inner=local.positive("n_inner", 4 * hidden),
        heads=local.positive("n_head"),
        norm_eps=local.rate("layer_norm_epsilon"),
        rope_base=local.rate("rope_base"),
    )


def _check(config: MossLocalConfig, where: str) -> None:
    backbone, local = config.backbone, config.local
    problems = {
        f"n_embd is {local.hidden} and hidden_size {backbone.hidden}; they must be equal": (
            local.hidden != backbone.hidden
        ),
        f"{backbone.heads} heads do not share {backbone.kv_heads} KV heads evenly": (
            backbone.heads % backbone.kv_heads != 0
        ),
        f"head_dim is {backbone.head_dim}; it must be even": backbone.head_dim % 2 != 0,
        f"n_embd {local.hidden} does not split into {local.heads} heads of even width": (
            local.hidden % (2 * local.heads) != 0
        ),
        f"audio_pad_code is {config.pad_code}; it must be the id after the last code, {config.codebook_size}": (
            config.pad_code != config.codebook_size
        ),
    }
    for message, wrong in problems.items():
        if wrong:
            raise VoxradixError(f"{where}: {message}")
    names = ("pad", "im_start", "im_end", "audio_start", "audio_end", "user_slot", "assistant_slot")
    ids = {name: getattr(config, f"{name}_id") for name in names}
    for name, value in ids.items():
        if value >= backbone.vocab:
            raise VoxradixError(f"{where}: the {name} id is {value}; it must lie in 0 .. {backbone.vocab - 1}")
        twins = [other for other in names if name != "pad" and other != name and ids[other] == value and other != "pad"]
        if twins:
            raise VoxradixError(f"{where}: {name} and {twins[0]} have the same id, {value}; each needs its own")
    try:
        config.layout  # noqa: B018 - a layout checks itself
    except VoxradixError as error:
        raise VoxradixError(f"{where}: its special ids leave no band of text ids free for keys: {error}") from None
