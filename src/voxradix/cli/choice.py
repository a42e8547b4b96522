"""Which model is loaded, how, and with how large a pool: options that several commands share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from voxradix.cli.terminal import say
from voxradix.errors import VoxradixError

if TYPE_CHECKING:
    from voxradix.voice import Voice

VoiceOption = Annotated[str | None, typer.Option(help="Name of a bundled voice [default: numbers].")]
ModelOption = Annotated[
    str | None,
    typer.Option(help="Checkpoint directory, or a name on the hub such as owner/name, instead of a bundled voice."),
]
RevisionOption = Annotated[str | None, typer.Option(help="Branch, tag or commit of --model on the hub.")]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Do not ask the hub; what was fetched before serves.")]
CodecOption = Annotated[
    str | None, typer.Option(help="Directory or hub name of the codec [default: the one the model names].")
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Let Python code that lies beside the codec's weights run here."),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1 [default: a GPU where there is one; a bundled voice: cpu].")
]
DtypeOption = Annotated[
    str | None, typer.Option(help="float32, bfloat16 or float16 [default: bfloat16 on a GPU, float32 on the CPU].")
]
MaxRowsOption = Annotated[
    int | None, typer.Option(help="Rows of text and audio kept in memory at once [default: 8192].", min=1)
]
MemoryOption = Annotated[
    str | None, typer.Option(help="Or memory for the weights and as many rows as fit, such as 12GB.", metavar="SIZE")
]

_ROWS = 8192
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>[kMGT]i?B?)", re.IGNORECASE)
_MOST_BYTES = 2.0**60
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What the options above say."""

    voice: str | None = None
    model: str | None = None
    revision: str | None = None
    offline: bool = False
    codec: str | None = None
    trust_remote_code: bool = False
    device: str | None = None
    dtype: str | None = None
    max_rows: int | None = None
    memory: str | None = None

    @property
    def name(self) -> str:
        """What is loaded, as the user names it."""
        return next(name for name in (self.model, self.voice, "numbers") if name is not None)

    def load(self) -> tuple[Voice, int]:
        """Load the voice; it, and how many rows its pool is to have. What it takes in memory is said first.

        Raises `VoxradixError` when the options exclude each other or the model cannot be loaded.
        """
        from voxradix.checkpoint import find_checkpoint
        from voxradix.models.moss_local import MemoryPlan
        from voxradix.voice import FRAME_RATE, load_voice

        if self.model is not None and self.voice is not None:
            raise VoxradixError(f"--model {self.model} and --voice {self.voice} exclude each other; give one")
        if self.max_rows is not None and self.memory is not None:
            raise VoxradixError(f"--max-rows {self.max_rows} and --memory {self.memory} exclude each other; give one")
        memory = None if self.memory is None else _bytes(self.memory)
        checkpoint = find_checkpoint(
            self.name,
            revision=self.revision,
            offline=self.offline,
            codec=self.codec,
            trust_remote_code=self.trust_remote_code,
        )
        checkpoint.check_codec()
        place, kind = checkpoint.place(self.device, self.dtype)
        rows = self.max_rows or _ROWS
        if memory is not None or self.max_rows is not None or not checkpoint.bundled:
            if memory is None:
                plan = MemoryPlan.of(checkpoint.config, kind, rows)
            else:
                plan = MemoryPlan.within(checkpoint.config, kind, memory)
            rows = plan.rows
            plan.require_room(place)
            say(f"{checkpoint.name} on {place}: {plan.told(FRAME_RATE)}")
        return load_voice(checkpoint, device=self.device, dtype=self.dtype), rows


def _bytes(text: str) -> int:
    """A size as users write it: 12GB, 800 MB, 7.5GiB."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise VoxradixError(f"--memory is {text!r}; it must be a size such as 12GB or 800MB")
    unit = match["unit"].upper()
    size = float(match["number"]) * (1024 if "I" in unit else 1000) ** _POWERS[unit[0]]
    if size > _MOST_BYTES:
        raise VoxradixError(f"--memory is {text[:40]!r}; no machine has so much")
    return int(size)
