"""Model presets: the models of the papers, and others with public shapes, each with its source.

A model with public weights has the shape of its config.json; test_configs.py has the published numbers of parameters.
The training sequence has the length that the report gives for most of pretraining. What the sources leave open:

- CurvaDion: rotary positions (section 4) and norms without parameters. A vocabulary of 50,304 (GPT-2's 50,257 up to a
  multiple of 64) with an untied head gives the paper's 619 MiB and 1,545 MiB of fp32 (printed as MB); no choice that we
  found gives its total of 216,044 GB at 1.3B.
- MT-DAO: "50K" is read as 50,000. The sizes match the names only with a tied head. Peri-norm: two around each module.
- DeMo's OLMo: attention is one fused matrix, the MLP is gated (SwiGLU, "mlp_ratio 8"), norms have no parameters. With a
  tied head of 50,304 the counts are DeMo's "non-embedding" 319,946,752 and 1,176,764,416, to the last digit.
- GPT-3: Table 2.1 has 24 heads of 128 at 1.3B, which are not its width of 2,048, and a width of 5,140 at 13B, which is
  not its 40 heads of 128. We use 16 heads, and 5,120, as other readers do.
- MPT: norms and all matrices have biases, which gives the published numbers of parameters to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.files import read_csv


def _presets() -> Iterator[ModelShape]:
    """Yield the shapes in ``models.csv``, whose columns are the fields of `ModelShape`; empty ones have the default."""
    for row in read_csv(Path(__file__).with_name("models.csv")):
        fields: dict[str, Any] = {"name": row.pop("name"), "source": row.pop("source")}
        for field, text in row.items():
            if field == "biases":
                fields[field] = tuple(text.split())
            elif text:
                fields[field] = text == "yes" if text in ("yes", "no") else int(text)
        yield ModelShape(**fields)


MODELS: dict[str, ModelShape] = {shape.name: shape for shape in _presets()}
"""Model presets by name."""
