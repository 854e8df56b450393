"""Named random streams: every stream of a run comes from one seed, by name.

Two streams with different names are independent, and adding a stream never moves another one:
a name is hashed into the spawn key of NumPy's ``SeedSequence``, so no order of creation is involved.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.SeedSequence:
    """The seed sequence of the stream ``names`` under ``seed``.

    >>> stream(0, "noise", 3).generate_state(1) == stream(0, "noise", 3).generate_state(1)
    array([ True])
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.SeedSequence(seed, spawn_key=tuple(np.frombuffer(digest, dtype=np.uint32).tolist()))


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator on the stream ``names`` under ``seed``."""
    return np.random.Generator(np.random.PCG64(stream(seed, *names)))


def seed64(seed: int, *names: str | int) -> int:
    """A 63-bit integer from the stream, for generators that take one integer (``torch.Generator.manual_seed``)."""
    return int(stream(seed, *names).generate_state(1, np.uint64)[0] >> 1)
