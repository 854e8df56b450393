"""Named random streams: every random stream of a run is derived from one seed and the stream's name.

Streams with different names are independent, and a new stream never changes another one: a hash of the name becomes the
spawn key of NumPy's ``SeedSequence``, so that the order of creation does not matter.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.SeedSequence:
    """Return the seed sequence of the stream ``names`` under ``seed``.

    >>> stream(0, "noise", 3).generate_state(1) == stream(0, "noise", 3).generate_state(1)
    array([ True])
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.SeedSequence(seed, spawn_key=tuple(np.frombuffer(digest, dtype=np.uint32).tolist()))


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a NumPy generator on the stream ``names`` under ``seed``."""
    return np.random.Generator(np.random.PCG64(stream(seed, *names)))


def seed64(seed: int, *names: str | int) -> int:
    """Return a 63-bit integer of the stream, for generators with an integer seed (``torch.Generator.manual_seed``)."""
    return int(stream(seed, *names).generate_state(1, np.uint64)[0] >> 1)
