"""The teacher: hibari-tts, opened up to give its last hidden states and to take word durations.

Every word is made to fill whole 80 ms frames, so that the codes of a word always start on a frame.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from hibari import Hibari
from numpy.typing import NDArray

from training.texts import END, PAUSE, SOUNDS, WORDS

UNITS = 3  # the teacher counts time in units of two hops; three of them make a frame

LATENT = "/dec_norm/LayerNormalization_output_0"
DURATION = "/Sub_output_0"


@dataclass(frozen=True)
class Speech:
    """One spoken line: `words` with their `frames` each, `latents` [hops, 256] and `f0` [hops] in Hz."""

    words: tuple[str, ...]
    frames: tuple[int, ...]
    latents: NDArray[np.float32]
    f0: NDArray[np.float32]


class Teacher:
    """Speaks lines of vocabulary words."""

    def __init__(self, pace: float = 0.95) -> None:
        """Open the teacher's model; `pace` above 1 speaks faster."""
        self._hibari = Hibari()
        self._pace = pace
        self._session = _open_graph(Path(self._hibari.model_path))
        self._phonemes = {word: self._sound(word) for word in WORDS} | {PAUSE: PAUSE, END: END}

    def _sound(self, word: str) -> str:
        spelled = word.upper() if len(word) == 1 else word
        return SOUNDS.get(word) or "".join(self._hibari.phonemize(spelled))

    def head(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The output layer: weight [3005, 256] and bias [3005], from a hidden state to five spectra."""
        arrays = {a.name: a for a in onnx.load(self._hibari.model_path).graph.initializer}
        quantised, scale, zero = (
            onnx.numpy_helper.to_array(arrays[f"/head/Transpose_output_0_{part}"]).astype(np.float32)
            for part in ("quantized", "scale", "zero_point")
        )
        return ((quantised - zero) * scale).T.copy(), onnx.numpy_helper.to_array(arrays["m.head.bias"]).copy()

    def speak(self, words: list[str]) -> Speech:
        """Speak `words` (the end mark is added)."""
        words = [*words, END]
        ids, owner = [0], [0]
        for i, word in enumerate(words):
            joined = i + 1 < len(words) and words[i + 1] not in (PAUSE, END)
            sound = self._hibari.ids(self._phonemes[word] + (" " if joined and word != END else ""))[1:-1]
            ids += sound
            owner += [i] * len(sound)
        ids.append(0)
        owner.append(len(words) - 1)
        feed = {"ids": np.array([ids]), "speed": np.ones(1, np.float32)}
        wished = self._session.run([DURATION], feed | {"durations": np.ones(len(ids), np.int64)})[0]
        wished = np.maximum(wished / (self._pace * 16 / 15), 0.3)
        wished[0] = 0.5 * UNITS
        wished[-2:] = 0.5 * UNITS
        durations, frames = _fill_frames(wished, np.array(owner), len(words))
        latents, f0 = self._session.run([LATENT, "f0"], feed | {"durations": durations})
        return Speech(tuple(words), frames, latents[0], f0[0])


def _open_graph(path: Path) -> onnxruntime.InferenceSession:
    model = onnx.load(os.fspath(path))
    graph = model.graph
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == "/Cast_32_output_0":
                node.input[i] = "durations"
    graph.input.append(onnx.helper.make_tensor_value_info("durations", onnx.TensorProto.INT64, ["L"]))
    for name in (LATENT, DURATION):
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def _fill_frames(
    wished: NDArray[np.float32], owner: NDArray[np.int64], words: int
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Whole durations, each at least one unit, near `wished`, that sum to whole frames for each word."""
    durations = np.ones(len(wished), np.int64)
    frames = []
    for word in range(words):
        at = np.flatnonzero(owner == word)
        count = max(round(float(wished[at].sum()) / UNITS), -(-len(at) // UNITS), 1)
        share = wished[at] * (count * UNITS / wished[at].sum())
        for _ in range(count * UNITS - len(at)):
            durations[at[np.argmax(share - durations[at])]] += 1
        frames.append(count)
    return durations, tuple(frames)
