"""The speech model in its training form: whole lines at once, parameters named as in released checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; the field names follow the released config."""

    vocab_size: int
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    n_head: int = 3
    n_inner: int = 384
    n_vq: int = 12
    audio_vocab_size: int = 256
    rope_theta: float = 1e6
    eps: float = 1e-6


class SpeechModel(nn.Module):
    """Backbone over rows and local transformer over the codes of a row."""

    def __init__(self, shape: Shape) -> None:
        """Fresh weights."""
        super().__init__()
        self.shape = shape
        self.transformer = _Backbone(shape)
        self.local_transformer = _Local(shape)
        self.audio_embeddings = nn.ModuleList(
            nn.Embedding(shape.audio_vocab_size, shape.hidden_size) for _ in range(shape.n_vq)
        )
        self.local_text_lm_head = nn.Linear(shape.hidden_size, 2, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.05 if "embed" in name else weight.shape[1] ** -0.5)

    def embed(self, rows: Tensor) -> Tensor:
        """Sum of embeddings [..., hidden] of rows [..., 1 + n_vq]; the pad code adds nothing."""
        total = F.embedding(rows[..., 0], self.transformer.embed_tokens.weight)
        for book in range(self.shape.n_vq):
            total = total + self._embed_code(book, rows[..., book + 1])
        return total

    def table(self, book: int) -> Tensor:
        """Embeddings of a codebook and its head, [audio_vocab, hidden]."""
        weight = self.audio_embeddings[book].weight
        assert isinstance(weight, Tensor)
        return weight

    def _embed_code(self, book: int, codes: Tensor) -> Tensor:
        return F.embedding(codes, F.pad(self.table(book), (0, 0, 0, 1)))

    def hidden(self, rows: Tensor) -> Tensor:
        """Backbone states [batch, length, hidden] of rows [batch, length, 1 + n_vq]."""
        states: Tensor = self.transformer(self.embed(rows))
        return states

    def decode(self, hidden: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Stop logits [n, 2] and code logits [n, n_vq, audio_vocab], from states [n, hidden] and codes [n, n_vq].

        Code k is judged from the state and the codes before k.
        """
        fed = [self._embed_code(book, codes[:, book]) for book in range(self.shape.n_vq - 1)]
        out = self.local_transformer(torch.stack([hidden, *fed], 1))
        heads = torch.stack([self.table(book) for book in range(self.shape.n_vq)])
        return self.local_text_lm_head(out[:, 0]), torch.einsum("nkh,kvh->nkv", out, heads)


class _Backbone(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.eps)
        self.shape = shape

    def attentions(self) -> list[_Attention]:
        """The attention of each layer."""
        return [layer.self_attn for layer in self.layers if isinstance(layer, _Layer)]

    def forward(self, x: Tensor) -> Tensor:
        turn = _turns(x.shape[1], self.shape.head_dim, self.shape.rope_theta)
        for layer in self.layers:
            x = layer(x, turn)
        states: Tensor = self.norm(x)
        return states


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.num_attention_heads, shape.num_key_value_heads, shape.num_key_value_heads
        self.head_dim = shape.head_dim
        width, queries, keys = (
            shape.hidden_size,
            shape.num_attention_heads * shape.head_dim,
            shape.num_key_value_heads * shape.head_dim,
        )
        self.q_proj = nn.Linear(width, queries, bias=False)
        self.k_proj = nn.Linear(width, keys, bias=False)
        self.v_proj = nn.Linear(width, keys, bias=False)
        self.o_proj = nn.Linear(queries, width, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, shape.eps)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, heads, self.head_dim).transpose(1, 2)
            for project, heads in zip((self.q_proj, self.k_proj, self.v_proj), self.heads, strict=True)
        )
        q, k = _rotate_halves(self.q_norm(q), turn), _rotate_halves(self.k_norm(k), turn)
        self.first_head = q[:, 0], k[:, 0]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))
        return mixed

    def first_head_looks(self) -> Tensor:
        """Log attention [batch, length, length] that the first head paid in the last forward pass."""
        q, k = self.first_head
        scores = q @ k.transpose(1, 2) * self.head_dim**-0.5
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        looks: Tensor = scores.masked_fill(later, -torch.inf).log_softmax(-1)
        return looks


class _Gated(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = _Attention(shape)
        self.mlp = _Gated(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.eps)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class _Local(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.h = nn.ModuleList([_LocalBlock(shape)])
        self.ln_f = nn.LayerNorm(shape.hidden_size, shape.eps)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.ln_f(self.h[0](x))
        return out


class _LocalBlock(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.hidden_size, shape.eps)
        self.ln_2 = nn.LayerNorm(shape.hidden_size, shape.eps)
        width = shape.hidden_size
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        inner = shape.n_inner
        self.mlp = nn.ModuleDict({"fc_in": nn.Linear(width, inner), "fc_out": nn.Linear(inner, width)})
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        turn = _turns(length, width // self.shape.n_head, self.shape.rope_theta)
        q, k, v = (
            part.view(batch, length, self.shape.n_head, -1).transpose(1, 2)
            for part in self.attn["c_attn"](self.ln_1(x)).chunk(3, -1)
        )
        q, k = _rotate_pairs(q, turn), _rotate_pairs(k, turn)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.attn["c_proj"](mixed.reshape(batch, length, width))
        out: Tensor = x + self.mlp["fc_out"](F.silu(self.mlp["fc_in"](self.ln_2(x))))
        return out


def _turns(length: int, size: int, base: float) -> Tensor:
    """Unit complex numbers [length, size / 2]: the rotation of each pair at each position."""
    angles = torch.arange(length)[:, None] * base ** (-torch.arange(0, size, 2) / size)
    return torch.polar(torch.ones_like(angles), angles)


def _rotate_halves(x: Tensor, turn: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * turn.real - second * turn.imag, second * turn.real + first * turn.imag], -1)


def _rotate_pairs(x: Tensor, turn: Tensor) -> Tensor:
    first, second = x[..., ::2], x[..., 1::2]
    pairs = first * turn.real - second * turn.imag, second * turn.real + first * turn.imag
    return torch.stack(pairs, -1).flatten(-2)
