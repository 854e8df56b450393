"""Source code as tokens: windows for training and, from other files, for evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HELD_OUT_ONE_IN = 10
LARGEST_FILE_BYTES = 1_000_000  # larger ones are tables
LARGEST_CORPUS_CHARACTERS = 200_000_000
TOKENIZER_CHARACTERS = 30_000_000
TEXTS_AT_ONCE = 1000
END = "<end>"


@dataclass(frozen=True)
class TokenWindows:
    """Windows of consecutive tokens.

    Attributes:
        train: ``(N, context + 1)``, without overlap.
        validation: ``(V, context + 1)``, evenly spaced over the held-out files.
        facts: sizes of the corpus and its hash.
    """

    train: Tensor
    validation: Tensor
    facts: dict[str, object]


def token_windows(
    folders: Sequence[Path], context: int, vocabulary: int, validation_windows: int, largest_files: int | None = None
) -> TokenWindows:
    """Return windows of the Python files in folders, as tokens of a byte-pair encoding that is trained on them.

    Of a larger corpus, 200 million characters count. One file in ten, chosen by the hash of its text, is held out; a
    text that occurs twice counts once. The encoding is trained on the first 30 million characters of the other files.
    """
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    texts: dict[str, str] = {}
    for path in files[:largest_files]:
        if path.is_file() and 0 < path.stat().st_size <= LARGEST_FILE_BYTES:
            text = path.read_text(errors="replace")
            texts.setdefault(hashlib.sha256(text.encode(errors="replace")).hexdigest(), text)
    lengths = np.cumsum([len(texts[key]) for key in sorted(texts)])  # the order of the hashes is no order of projects
    keys = sorted(texts)[: int(np.searchsorted(lengths, LARGEST_CORPUS_CHARACTERS)) + 1]
    parts: tuple[list[str], list[str]] = ([], [])
    for key in keys:
        parts[int(key, 16) % HELD_OUT_ONE_IN == 0].append(texts[key])
    tokenizer = _tokenizer(parts[0], vocabulary)
    train, held_out = (torch.from_numpy(_encoded(part, tokenizer)) for part in parts)
    count = (len(train) - 1) // context
    starts = torch.linspace(0, len(held_out) - context - 1, validation_windows, dtype=torch.float64).long()
    return TokenWindows(
        train.unfold(0, context + 1, context)[:count].contiguous(),
        held_out.unfold(0, context + 1, 1)[starts].contiguous(),
        {
            "files": len(keys),
            "characters": int(lengths[len(keys) - 1]),
            "train_tokens": len(train),
            "held_out_tokens": len(held_out),
            "sha256": hashlib.sha256("".join(keys).encode()).hexdigest(),
        },
    )


def _tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    """Return a byte-pair encoding of at most so many tokens, trained on the first texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    count = int(np.searchsorted(np.cumsum([len(text) for text in texts]), TOKENIZER_CHARACTERS)) + 1
    tokenizer.train_from_iterator(texts[:count], trainer)
    return tokenizer


def _encoded(texts: Sequence[str], tokenizer: Any) -> np.ndarray:
    """Return all texts as int32 tokens, each with an end."""
    batches = (texts[first : first + TEXTS_AT_ONCE] for first in range(0, len(texts), TEXTS_AT_ONCE))
    return np.concatenate(
        [
            np.asarray(encoding.ids, dtype=np.int32)
            for batch in batches
            for encoding in tokenizer.encode_batch([text + END for text in batch])
        ]
    )
