"""MOSS-Audio-Tokenizer-v2, the codec of the released model: whole, streamed in slots, and from recordings to codes."""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from voxradix.audio.codec import CodecStream
from voxradix.audio.codes import check_codes
from voxradix.audio.moss_slots import RemoteCodec, Slots
from voxradix.audio.reference import prepared
from voxradix.errors import VoxradixError

_CHUNK_SECONDS = 8
"""Of sound a pass makes at most: ``chunk_duration`` of the public processor, 100 frames of the released codec."""
_REMEMBERED = 64
"""Recordings whose codes are kept."""


class MossCodec:
    """Decodes frames to sound, alone or many streams in one pass, and encodes recordings.

    A waveform does not depend on what else is open: a stream advances in a batch of one size, and a whole decode is
    the public processor's own call, with the streams' states set aside. Streamed sound differs from whole sound by
    rounding. One thread may use a codec at a time.

    Attributes: `sample_rate` in Hz, `samples_per_frame` in each channel, `channels`, `codebooks` (codes a frame, as
    many as the model has and at most the codec's own), `codebook_size`.
    """

    def __init__(self, model: RemoteCodec, codebooks: int, *, slots: int = 16) -> None:
        """Take a loaded codec (`load_moss_codec`) that is not streaming, and the number of streams it may have."""
        config = model.config
        self.sample_rate = int(config.sampling_rate)
        self.samples_per_frame = int(config.downsample_rate)
        self.channels = int(config.number_channels)
        self.codebook_size = int(config.quantizer_kwargs["codebook_size"])
        self.codebooks = codebooks
        known = int(config.quantizer_kwargs["num_quantizers"])
        if not 1 <= codebooks <= known:
            raise VoxradixError(f"the codec has {known} codebooks; a model with {codebooks} cannot use it")
        if self.channels not in (1, 2):
            raise VoxradixError(f"the codec has {self.channels} channels; it must have 1 or 2")
        self._longest = _CHUNK_SECONDS * self.sample_rate // self.samples_per_frame
        self._model = model
        self._device = next(model.parameters()).device
        self._slots = Slots(model, slots)
        self._remembered: OrderedDict[str, Tensor] = OrderedDict()

    def decode(self, codes: Tensor) -> Tensor:
        """The whole waveform of codes int64 [T, codebooks], float32 [T * samples_per_frame, channels] in [-1, 1].

        One dimension where the codec has one channel. `VoxradixError` when the codes do not fit.
        """
        self._check(codes)
        if not len(codes):
            return self.silence()
        whole = codes.T.to(self._device, torch.int64)[:, None]
        with self._slots.aside():
            made = self._model.decode(
                whole,
                padding_mask=torch.ones(whole.shape[1:], dtype=torch.bool, device=self._device),
                num_quantizers=self.codebooks,
                return_dict=True,
                chunk_duration=_CHUNK_SECONDS,
            )
            return self._samples(made.audio[0, :, : int(made.audio_lengths[0])].cpu())

    def stream(self) -> MossStream:
        """A stream, which holds a slot until it ends; `VoxradixError` when all are taken."""
        return MossStream(self, self._slots)

    def push(self, parts: Mapping[CodecStream, Tensor]) -> dict[CodecStream, Tensor]:
        """Decode what several streams of this codec are given; those with as many frames left share a pass.

        An error of a pass is raised as it is. It ends every stream of this push; the other streams of the codec
        go on where they were.
        """
        streams: dict[CodecStream, MossStream] = {}
        for stream, codes in parts.items():
            self._check(codes)
            if not isinstance(stream, MossStream) or stream.codec is not self:
                raise VoxradixError("the stream is another codec's; push it there")
            if stream.ended is not None:
                raise VoxradixError(f"the stream {stream.ended}; codes need a new one")
            streams[stream] = stream
        left = {streams[stream].slot: codes for stream, codes in parts.items()}
        pieces: dict[int, list[Tensor]] = {slot: [] for slot in left}
        try:
            while left := {slot: codes for slot, codes in left.items() if len(codes)}:
                frames = min(self._longest, *map(len, left.values()))
                made = self._slots.step({slot: codes[:frames] for slot, codes in left.items()})
                for slot, audio in made.items():
                    pieces[slot].append(audio)
                left = {slot: codes[frames:] for slot, codes in left.items()}
        except BaseException:
            for ours in streams.values():
                ours.end("failed with its pass")
            raise
        return {
            stream: self._samples(torch.cat(pieces[ours.slot], dim=1)) if pieces[ours.slot] else self.silence()
            for stream, ours in streams.items()
        }

    def encode(self, samples: Tensor, sample_rate: int) -> Tensor:
        """The codes of a recording, float32 [N] or [N, c]: int64 [F, codebooks], F whole frames.

        The recording is brought to the codec's channels and rate and near -20 dBFS first (`reference.prepared`).
        Codes are kept by the recording's content, so the same one is encoded once. `VoxradixError` when the
        recording has no whole frame.
        """
        if not isinstance(samples, Tensor):
            raise VoxradixError(f"the recording is a {type(samples).__name__}; it must be a float32 tensor")
        if isinstance(sample_rate, bool) or not isinstance(sample_rate, int) or sample_rate < 1:
            raise VoxradixError(f"sample_rate is {sample_rate!r}; it must be a whole number of Hz, at least 1")
        if samples.dtype != torch.float32 or samples.ndim not in (1, 2) or 0 in samples.shape:
            raise VoxradixError(
                f"the recording is {samples.dtype} {list(samples.shape)}; it must be torch.float32 [N] or [N, channels]"
            )
        if not bool(samples.isfinite().all()):
            raise VoxradixError("the recording holds samples that are not finite numbers")
        samples = samples.cpu().contiguous()
        name = hashlib.sha256(f"{list(samples.shape)} {sample_rate} ".encode())
        name.update(samples.numpy().tobytes())
        key = name.hexdigest()
        if key not in self._remembered:
            self._remembered[key] = self._encoded(samples, sample_rate)
        self._remembered.move_to_end(key)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return self._remembered[key].clone()

    def silence(self) -> Tensor:
        """No samples, in the shape of this codec's samples."""
        return self._samples(torch.zeros(self.channels, 0))

    def _encoded(self, samples: Tensor, sample_rate: int) -> Tensor:
        sound = prepared(samples, sample_rate, target_rate=self.sample_rate, channels=self.channels)
        if sound.shape[1] < self.samples_per_frame:
            raise VoxradixError(
                f"the recording is {1000 * len(samples) / sample_rate:.0f} ms long; "
                f"it must be at least a frame, {1000 * self.samples_per_frame / self.sample_rate:.0f} ms"
            )
        with self._slots.aside():
            made = self._model.batch_encode([sound.to(self._device)], num_quantizers=self.codebooks)
            codes: Tensor = made.audio_codes[:, 0, : int(made.audio_codes_lengths[0])].T
            return codes.to("cpu", torch.int64).contiguous()

    def _check(self, codes: Tensor) -> None:
        check_codes(codes, self.codebooks, self.codebook_size)

    def _samples(self, audio: Tensor) -> Tensor:
        """Audio [channels, N] as callers have samples, within full scale as in any PCM file."""
        audio = audio.to(torch.float32).clamp(-1.0, 1.0)
        return audio[0] if self.channels == 1 else audio.T.contiguous()


class MossStream:
    """One utterance in a slot of a `MossCodec`; a stream that nobody holds any longer gives its slot back too.

    Attributes: `codec`, its codec; `slot`, its place in the batch; `ended`, how it ended, or None.
    """

    def __init__(self, codec: MossCodec, slots: Slots) -> None:
        """Begin an utterance, in silence."""
        self.codec = codec
        self.slot = slots.take()
        self.ended: str | None = None
        self._give_back = weakref.finalize(self, slots.free.append, self.slot)

    def push(self, codes: Tensor) -> Tensor:
        """The sound of codes int64 [t, codebooks], t >= 0, in the shape `MossCodec.decode` has; no frame is held back.

        `VoxradixError` when the codes do not fit or the stream has ended.
        """
        return self.codec.push({self: codes})[self]

    def finish(self) -> Tensor:
        """No samples, as none are held back; the stream gives its slot back."""
        if self.ended is not None:
            raise VoxradixError(f"the stream {self.ended}; it cannot be finished")
        self.end("was finished")
        return self.codec.silence()

    def close(self) -> None:
        """Give the slot back; a stream that has ended stays as it is."""
        if self.ended is None:
            self.end("was closed")

    def end(self, how: str) -> None:
        """Give the slot back and tell ``how`` to whoever uses the stream again."""
        self.ended = how
        self._give_back()
