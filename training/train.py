"""Trains the speech model on coded lines.

The sound codes of the history are spoilt at random, so that the model learns to speak from the text and the
clock first and cannot drift on its own mistakes.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from training.corpus import Corpus
from training.model import Shape, SpeechModel
from training.rows import CODE_PAD, COLUMNS, ID, MARKS, TOKENS, frames, prompt
from training.texts import VOCABULARY

FIRST_SOUND = 3  # column of the first sound code


@dataclass(frozen=True)
class Plan:
    """Length and manner of a training run."""

    steps: int
    batch_frames: int = 1000
    rate: float = 4e-3
    seed: int = 0
    warm: int = 50


@dataclass(frozen=True)
class Batch:
    """Rows [b, length, 13], padded at the end, and where the states that predict frames and stops are."""

    rows: Tensor
    predicts: Tensor  # [b, length] bool: the next row is a frame
    ends: Tensor  # [b, length] bool: the line stops here
    words: Tensor  # [b, length] position of the word that the next row speaks


def fresh_model(seed: int, **sizes: int) -> SpeechModel:
    """An untrained model whose marks and pointers start out alike."""
    torch.manual_seed(seed)
    model = SpeechModel(Shape(vocab_size=-(-len(TOKENS) // 64) * 64, **sizes))
    with torch.no_grad():
        marks = model.transformer.embed_tokens.weight[ID["<w0>"] : ID["<w0>"] + MARKS].mul_(3)
        model.table(0)[:MARKS] = marks
    return model


def batches(corpus: Corpus, codes: Tensor, size: int, rng: random.Random) -> list[list[int]]:
    """Line numbers in groups of about `size` frames, lines of like length together, in random order."""
    lengths = [int(d.sum()) for d in corpus.durations]
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + rng.random() * 8)
    groups: list[list[int]] = [[]]
    load = 0
    for i in order:
        if load >= size:
            groups.append([])
            load = 0
        groups[-1].append(i)
        load += lengths[i]
    rng.shuffle(groups)
    return groups


def collate(corpus: Corpus, codes: Tensor, lines: list[int], rng: random.Random) -> Batch:
    """The batch of these lines, each from a random first mark half of the time."""
    made = []
    for i in lines:
        offset = rng.randrange(MARKS) if rng.random() < 0.5 else 0
        durations = torch.from_numpy(corpus.durations[i])
        span = slice(int(corpus.starts[i]), int(corpus.starts[i + 1]))
        words = torch.from_numpy(corpus.words[i])
        places = 2 + 2 * torch.arange(len(words)).repeat_interleave(durations)
        made.append((prompt(words, offset), frames(codes[span], durations, offset), places))
    length = max(len(p) + len(f) for p, f, _ in made)
    rows = torch.full((len(made), length, COLUMNS), CODE_PAD)
    rows[:, :, 0] = ID["<|pad|>"]
    predicts, ends = torch.zeros(2, len(made), length, dtype=torch.bool)
    word_at = torch.zeros(len(made), length, dtype=torch.int64)
    for i, (start, rest, places) in enumerate(made):
        stop = len(start) + len(rest)
        rows[i, :stop] = torch.cat([start, rest])
        predicts[i, len(start) - 1 : stop - 1] = True
        ends[i, stop - 1] = True
        word_at[i, len(start) - 1 : stop - 1] = places
    return Batch(rows, predicts, ends, word_at)


def spoil(rows: Tensor, predicts: Tensor) -> Tensor:
    """The rows with sound codes of frames dropped or exchanged, at a rate drawn for each line."""
    rows = rows.clone()
    sound = rows[:, :, FIRST_SOUND:]
    is_frame = F.pad(predicts, (1, -1))
    rate = torch.rand(len(rows), 1)
    gone = (torch.rand(predicts.shape) < rate) & is_frame
    sound[gone] = CODE_PAD
    kept = is_frame & ~gone
    wrong = (torch.rand(sound.shape) < 0.5 * torch.rand(len(rows), 1, 1).square()) & kept[:, :, None]
    donors = sound[kept]
    if len(donors):
        drawn = torch.randint(len(donors), (int(wrong.sum()),))
        sound[wrong] = donors[drawn, torch.nonzero(wrong)[:, 2]]
    return rows


def losses(model: SpeechModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stop loss (), guide loss (), code losses [12] and share of codes guessed right [12].

    The guide teaches the model to find its place: the first head of layer 0 looks from a word to its mark,
    and that of layer 1 from a frame to the word to be spoken next.
    """
    hidden = model.hidden(spoil(batch.rows, batch.predicts))
    target = batch.rows.roll(-1, 1)[batch.predicts][:, 1:]
    fed = target.clone()
    swapped = torch.rand(fed[:, 2:].shape) < 0.1
    fed[:, 2:][swapped] = fed[torch.randperm(len(fed)), 2:][swapped]
    stop_go, logits = model.decode(hidden[batch.predicts], fed)
    last = hidden[batch.ends]
    stop_end = model.decode(last, torch.zeros(len(last), 12, dtype=torch.int64))[0]
    stop = F.cross_entropy(stop_go, torch.zeros(len(stop_go), dtype=torch.int64)) + 0.2 * F.cross_entropy(
        stop_end, torch.ones(len(stop_end), dtype=torch.int64)
    )
    code = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    code = code.view(target.shape).mean(0)
    is_word = batch.rows[:, :, 0] < len(VOCABULARY)
    marks, words = (attention.first_head_looks() for attention in model.transformer.attentions()[:2])
    mark = -marks.diagonal(-1, 1, 2)[is_word[:, 1:]].mean()
    guide = mark - words.gather(2, batch.words[:, :, None])[:, :, 0][batch.predicts].mean()
    right = (logits.detach().argmax(-1) == target).float().mean(0)
    return stop, guide, code, right


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonal steps, for matrices; torch's own rounds to bfloat16, which is slow on a CPU."""

    def __init__(self, weights: list[Tensor], lr: float, momentum: float = 0.95) -> None:
        """`lr` is on the scale of AdamW's."""
        super().__init__([{"params": weights}], {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step for every matrix."""
        for group in self.param_groups:
            for weight in group["params"]:
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - group["momentum"])
                update = _orthogonal(weight.grad.lerp(momentum, group["momentum"]))
                weight.add_(update, alpha=-0.2 * group["lr"] * max(weight.shape) ** 0.5)


def _orthogonal(matrix: Tensor) -> Tensor:
    """Near the orthogonal matrix closest to `matrix`, by five Newton-Schulz rounds."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    result: Tensor = x.T if tall else x
    return result


def optimizers(model: SpeechModel, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside, AdamW for tables and vectors."""
    inner: list[Tensor] = []
    outer: list[Tensor] = []
    for name, weight in model.named_parameters():
        table = weight.ndim < 2 or "embed" in name or "lm_head" in name
        (outer if table else inner).append(weight)
    return [Muon(inner, rate), torch.optim.AdamW(outer, lr=rate, weight_decay=0.0, betas=(0.9, 0.98))]


def train(model: SpeechModel, corpus: Corpus, codes: Tensor, plan: Plan, checkpoint: Path) -> None:
    """Train in place; `checkpoint` is rewritten every 200 steps and at the end."""
    torch.manual_seed(plan.seed)
    rng = random.Random(plan.seed)
    tools = optimizers(model, plan.rate)
    queue: list[list[int]] = []
    begun = time.time()
    for step in range(plan.steps):
        queue = queue or batches(corpus, codes, plan.batch_frames, rng)
        share = min((step + 1) / plan.warm, 1.0) * min(1.0, 1.4 * (1 - step / plan.steps))
        for tool in tools:
            for group in tool.param_groups:
                group["lr"] = plan.rate * share
        stop, guide, code, right = losses(model, collate(corpus, codes, queue.pop(), rng))
        (stop + guide + code.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        for tool in tools:
            tool.step()
            tool.zero_grad()
        if step % 50 == 0:
            state, sound = code[:2].sum(), code[2:].mean()
            print(
                f"{time.time() - begun:5.0f} s step {step}: loss of stop {stop.item():.3f} guide {guide.item():.3f} "
                f"state {state.item():.3f} sound {sound.item():.3f}; "
                f"right {' '.join(f'{share:.0%}' for share in right.tolist())}",
                flush=True,
            )
        if (step + 1) % 100 == 0 or step + 1 == plan.steps:
            torch.save(model.state_dict(), checkpoint)
