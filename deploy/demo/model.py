# SPDX-License-Identifier: Apache-2.0
"""A small GPT over the characters of a text, and the batches it is trained on."""

import pathlib

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 128  # ASCII
CONTEXT = 64
WIDTH = 96
HEADS = 4
LAYERS = 3
DROPOUT = 0.1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=DROPOUT if self.training else 0.0)
        x = x + self.dropout(self.projection(y.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, text, target):
        x = self.dropout(self.token(text) + self.position(torch.arange(text.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


class Batches:
    """Random windows of a text. The generator is this rank's own and must be saved: it is the position in the data."""

    def __init__(self, path, rank, size):
        self._text = torch.tensor(list(pathlib.Path(path).read_bytes())) % VOCABULARY
        self._generator = torch.Generator().manual_seed(1000 + rank)
        self._size = size

    def next(self):
        starts = torch.randint(len(self._text) - CONTEXT - 1, (self._size,), generator=self._generator)
        windows = torch.stack([self._text[i : i + CONTEXT + 1] for i in starts.tolist()])
        return windows[:, :-1], windows[:, 1:]

    def state_dict(self):
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state):
        self._generator.set_state(state["generator"])
