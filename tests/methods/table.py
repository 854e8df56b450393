"""The shared table of methods: every shared property is tested on every row.

A new method is one file in ``syncline/methods`` and one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from syncline.methods import MethodBase, method_of
from tests.methods.moves import Moves, inert, refused
from tests.methods.own import Lamb

Serial = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Row:
    """A method by its spec's fields, and the serial optimizer that it is with one worker, where torch has it.

    One row of each kind has a ``setting`` where the kind's knobs matter within a few steps, and ``moves`` says what its
    fields do there that ``FIELDS`` does not say. An unsettled one follows directions that only the last bits tell
    apart: its path is the same for the same bits.
    """

    fields: dict[str, Any]
    serial: Serial | None = None
    name: str = field(default="")
    settled: bool = True
    setting: dict[str, Any] | None = None
    moves: dict[str, Moves] = field(default_factory=dict)

    @cached_property
    def spec(self) -> MethodBase:
        return method_of(self.fields)


def sgd(momentum: float) -> Serial:
    return lambda params: torch.optim.SGD(params, lr=0.05, momentum=momentum)


def adamw(weight_decay: float = 0.0) -> Serial:
    return lambda params: torch.optim.AdamW(params, lr=0.003, weight_decay=weight_decay)


def nadam() -> Serial:
    return lambda params: torch.optim.NAdam(params, lr=0.003, betas=(0.99, 0.999), momentum_decay=0.004)


ADAM = {"lr": 0.003, "rule": "adam"}
SGDM = {"lr": 0.05, "rule": {"kind": "sgdm", "momentum": 0.9}}
SGD = {"lr": 0.05, "rule": {"kind": "sgdm", "momentum": 0.0}}
EMA = {"lr": 0.5, "rule": {"kind": "sgdm", "momentum": 0.9, "form": "ema"}}
ADOPT = {"lr": 0.003, "rule": "adopt"}
ONE_SLOW = {"kind": "mt-dao", "lr": 0.003, "betas": [0.99], "omegas": [0.9], "period": 8}

LION = {"lr": 0.001}
ZERO_ONE = {"kind": "zero-one-adam", "lr": 0.001, "eps": 1e-3, "freeze_step": 6, "kappa": 2, "double_every": 2}
ROTATION = {"kind": "basis-rotation", "lr": 0.003}
UNILATERAL = {**ROTATION, "geometry": "unilateral"}
LAMB = {"kind": "torch", "target": "tests.methods.own:Lamb"}
CURVADION = {"kind": "curvadion", "lr": 0.02, "other_lr": 0.003}

METHODS: dict[str, Row] = {
    "ddp-sgd": Row({"kind": "ddp", **SGD}, sgd(0.0), setting={}),
    "ddp-sgdm": Row({"kind": "ddp", **SGDM}, sgd(0.9)),
    "ddp-sgdm-ema": Row({"kind": "ddp", **EMA}, sgd(0.9)),
    "ddp-adam": Row({"kind": "ddp", **ADAM}, adamw()),
    "ddp-adamw": Row({"kind": "ddp", **ADAM, "weight_decay": 0.1}, adamw(0.1)),
    "ddp-adam-clipped": Row({"kind": "ddp", **ADAM, "clip_norm": 0.5}),
    "ddp-nadam": Row({"kind": "ddp", "lr": 0.003, "rule": "nadam"}, nadam()),
    "ddp-ada-sgd": Row({"kind": "ddp", "lr": 0.003, "rule": "ada-sgd"}),
    "ddp-adopt": Row({"kind": "ddp", **ADOPT}),
    "ddp-qhm": Row({"kind": "ddp", "lr": 0.3, "rule": {"kind": "qhm", "momentum": 0.95}}),
    "ddp-qhadam": Row({"kind": "ddp", "lr": 0.003, "rule": {"kind": "qhadam", "nu2": 0.9}}),
    "ddp-qhadam-one": Row({"kind": "ddp", "lr": 0.003, "rule": {"kind": "qhadam", "beta1": 0.9, "nu1": 1.0}}, adamw()),
    "ddp-qhadopt": Row({"kind": "ddp", "lr": 0.003, "rule": "qhadopt"}),
    "ddp-aggmo": Row({"kind": "ddp", "lr": 0.01, "rule": "aggmo"}),
    "ddp-ademamix": Row({"kind": "ddp", "lr": 0.002, "rule": {"kind": "ademamix", "beta3": 0.99}}),
    "ddp-ademamix-warmed-up": Row(
        {
            "kind": "ddp",
            "lr": 0.002,
            "rule": {"kind": "ademamix", "alpha": 5.0, "alpha_warmup_steps": 20, "beta3_warmup_steps": 30},
            "weight_decay": 0.1,
        }
    ),
    "ddp-multi-momentum": Row(
        {"kind": "ddp", "lr": 0.003, "rule": {"kind": "multi-momentum", "betas": [0.9, 0.99], "omegas": [0.4, 0.5]}}
    ),
    "ddp-multi-momentum-muon": Row(
        {"kind": "ddp", "lr": 0.02, "other_lr": 0.003, "rule": {"kind": "multi-momentum", "base": "muon"}}
    ),
    "local-sgd": Row(
        {"kind": "local", **SGD, "period": 8},
        sgd(0.0),
        setting={"period": 4},
        moves={"rule": Moves("sgdm", bytes="<", kept="<")},
    ),
    "local-sgdm": Row({"kind": "local", **SGDM, "period": 8}, sgd(0.9)),
    "local-adam": Row({"kind": "local", **ADAM, "period": 8}, adamw()),
    "local-qhadam": Row({"kind": "local", "lr": 0.003, "rule": {"kind": "qhadam", "beta1": 0.99}, "period": 8}),
    "local-aggmo": Row({"kind": "local", "lr": 0.01, "rule": "aggmo", "period": 8}),
    "diloco-ademamix": Row({"kind": "diloco", "lr": 0.002, "rule": {"kind": "ademamix", "beta3": 0.99}, "period": 8}),
    "local-adopt": Row({"kind": "local", **ADOPT, "period": 8}),
    "ddp-torch-nadam": Row(
        {"kind": "ddp", "lr": 0.003, "rule": {"kind": "torch", "target": "torch.optim:NAdam", "betas": [0.99, 0.999]}},
        nadam(),
    ),
    "local-torch-lamb": Row(
        {"kind": "local", "lr": 0.003, "rule": {**LAMB, "average_states": ["m", "v"]}, "period": 8},
        lambda params: Lamb(params, lr=0.003),
    ),
    "diloco-torch-lamb": Row({"kind": "diloco", "lr": 0.003, "rule": {**LAMB, "average_states": ["v"]}, "period": 8}),
    "diloco": Row({"kind": "diloco", **ADAM, "period": 8}, setting={"period": 4}),
    "diloco-in-backward": Row({"kind": "diloco", **ADAM, "period": 8, "in_backward": True}),
    "diloco-sgdm": Row({"kind": "diloco", **SGDM, "period": 5, "outer_lr": 0.5, "outer_momentum": 0.8}),
    "mt-dao": Row(ONE_SLOW, setting={"period": 4}),
    "mt-dao-clipped": Row({**ONE_SLOW, "clip_norm": 1.0, "weight_decay": 0.01}),
    "mt-dao-paper-phase": Row({**ONE_SLOW, "phase": "paper"}),
    "mt-dao-outer": Row({**ONE_SLOW, "outer_optimizer": {"lr": 0.7, "momentum": 0.5}}),
    "mt-dao-uncorrected": Row({**ONE_SLOW, "bias_correction": False, "lr": 0.001}),
    "mt-dao-random": Row({**ONE_SLOW, "base": "sgdm", "lr": 0.05, "phase": "random", "period": 1}),
    "mt-dao-own-periods": Row(
        {
            **ONE_SLOW,
            "betas": [0.9, 0.999],
            "omegas": [0.3, 0.6],
            "period": 4,
            "momentum_periods": [6, 10],
            "second_moment_period": 7,
        }
    ),
    "mt-dao-adopt": Row({**ONE_SLOW, "base": "adopt"}),
    "mt-dao-sgdm": Row({**ONE_SLOW, "base": "sgdm", "lr": 0.3}),
    "ddp-muon": Row({"kind": "ddp", "rule": "muon", "lr": 0.02, "other_lr": 0.003}),
    "ddp-scion": Row({"kind": "ddp", "rule": "scion", "lr": 0.00025, "weight_decay": 1.0}),
    "ddp-scion-rows": Row(
        {"kind": "ddp", "rule": {"kind": "scion", "momentum": 0.0, "tables": "rows", "radius": 2.0}, "lr": 0.005}
    ),
    "local-scion": Row({"kind": "local", "rule": {"kind": "scion", "radius": 2.0}, "lr": 0.005, "period": 8}),
    "local-muon": Row({"kind": "local", "rule": "muon", "lr": 0.02, "other_lr": 0.003, "period": 8}),
    "mt-dao-muon": Row({**ONE_SLOW, "base": "muon", "lr": 0.02, "other_lr": 0.003}),
    "mt-dao-switched": Row({**ONE_SLOW, "switch_step": 10}),
    "mt-dao-fedadam": Row({**ONE_SLOW, "outer_optimizer": {"kind": "fedadam", "lr": 0.01}}),
    "dion": Row(
        {"kind": "dion", "lr": 0.02, "other_lr": 0.003},
        setting={"lr": 0.02},
        moves={
            "other_lr": Moves(0.0321),
            "rank_fraction": Moves(0.5, bytes=">", kept=">", beside={"exchange": "compressed"}),
            "local_step": Moves("hold", kept=">", beside={"period": 4}),
        },
    ),
    "dion-compressed": Row({"kind": "dion", "exchange": "compressed", "lr": 0.02, "other_lr": 0.003}),
    "dion-scheduled": Row({"kind": "dion", "period": 6, "lr": 0.02, "other_lr": 0.003}),
    "dion-held": Row({"kind": "dion", "period": 3, "local_step": "hold", "lr": 0.02, "other_lr": 0.003}),
    "dion-placed-evenly": Row(
        {"kind": "placed-dion", "num_averages": 5, "steps": 12, "lr": 0.02, "other_lr": 0.003},
        setting={"lr": 0.02, "num_averages": 8, "steps": 24},
        moves={
            "other_lr": Moves(0.0321),
            "rank_fraction": Moves(0.5, bytes=">", kept=">", beside={"exchange": "compressed"}),
            "local_step": Moves("hold", kept=">"),
            "num_averages": Moves(12, bytes=">"),
            "steps": Moves(48, bytes="<"),
        },
    ),
    "dion-placed-at-random": Row(
        {"kind": "placed-dion", "placement": "random", "num_averages": 5, "steps": 12, "lr": 0.02, "other_lr": 0.003}
    ),
    "dion-placed-early-compressed": Row(
        {
            "kind": "placed-dion",
            "placement": "early",
            "num_averages": 5,
            "steps": 12,
            "exchange": "compressed",
            "lr": 0.02,
            "other_lr": 0.003,
        }
    ),
    "curvadion-always": Row(
        {**CURVADION, "threshold": 0.0, "expected_sync_rate": 1.0},
        setting={"lr": 0.02, "threshold": 0.001},
        moves={
            "other_lr": Moves(0.0321),
            "rank_fraction": Moves(0.5, bytes=">", kept=">", beside={"exchange": "compressed"}),
            "local_step": Moves("hold", kept=">", beside={"threshold": 1e9}),
            "variant": Moves("code", beside={"threshold": 0.5}),
        },
    ),
    "curvadion-code": Row(
        {**CURVADION, "threshold": 0.0, "variant": "code", "exchange": "compressed", "expected_sync_rate": 1.0}
    ),
    "selsync-dion": Row(
        {"kind": "selsync-dion", "lr": 0.02, "other_lr": 0.003, "threshold": 0.0, "expected_sync_rate": 1.0},
        setting={"lr": 0.02, "threshold": 0.001},
        moves={
            "other_lr": Moves(0.0321),
            "rank_fraction": Moves(0.5, bytes=">", kept=">", beside={"exchange": "compressed"}),
            "local_step": Moves("hold", kept=">", beside={"threshold": 1e9}),
        },
    ),
    "selsync": Row(
        {
            "kind": "selsync",
            "lr": 0.003,
            "rule": {"kind": "adam", "eps": 1e-3},
            "threshold": 0.0,
            "expected_sync_rate": 1.0,
        },
        setting={"threshold": 0.02, "smoothing": 0.5},
    ),
    "selsync-gradients": Row(
        {
            "kind": "selsync",
            **SGDM,
            "threshold": 0.0,
            "expected_sync_rate": 1.0,
            "aggregation": "gradients",
            "wire": "bf16",
            "weight_decay": 0.01,
        }
    ),
    "demo": Row(
        {"kind": "demo", "lr": 0.001, "k": 4, "chunk": 16},
        setting={"k": 4, "chunk": 16},
        moves={
            "clip_norm": Moves(0.01, beside={"base": "sgd"}),
            "wire": inert("bf16", "value is the format of what it sends"),
            "base": Moves("sgd"),
            "chunk": Moves(4, bytes=">"),
            "per_node": Moves(2, bytes=">"),
        },
    ),
    "demo-hybrid": Row({"kind": "demo", "lr": 0.001, "k": 4, "chunk": 16, "per_node": 2}),
    "demo-hybrid-sgd": Row(
        {"kind": "demo", "base": "sgd", "lr": 0.05, "k": 4, "chunk": 8, "per_node": 2, "wire": "bf16", "period": 2}
    ),
    "demo-sgd": Row(
        {"kind": "demo", "base": "sgd", "lr": 0.05, "k": 3, "chunk": 8, "alpha": 0.2, "average": "all", "beta": 0.9}
    ),
    "demo-random": Row({"kind": "demo", "base": "muon", "lr": 0.02, "k": 4, "chunk": 16, "basis": "random"}),
    "powersgd": Row(
        {"kind": "powersgd", "lr": 0.02, "rank": 2, "rule": {"kind": "sgdm", "momentum": 0.0}},
        setting={"rank": 1},
        moves={
            "rule": Moves("adam", kept=">"),
            "warmup_steps": Moves(6, bytes=">"),
            "error_feedback": Moves(False),
            "compress_all_matrices": Moves(True, bytes=">", kept=">", beside={"rank": 40}),
        },
    ),
    "ddp-lion": Row({"kind": "ddp", **LION, "rule": "lion", "weight_decay": 0.1}),
    "ddp-lion-16bit": Row({"kind": "ddp", **LION, "rule": "lion", "wire": "bf16"}),
    "lion-cub": Row(
        {"kind": "lion-cub", **LION},
        setting={},
        moves={
            "wire": Moves("bf16", bytes="<", beside={"momentum_layers": "all"}),
            "vote": Moves("one-bit", bytes="<"),
            "ties": Moves("plus", beside={"vote": "one-bit"}),
            "momentum_period": Moves(12, bytes="<", beside={"momentum_layers": "all"}),
        },
    ),
    "lion-cub-1bit": Row({"kind": "lion-cub", **LION, "vote": "one-bit"}),
    "lion-cub-ternary": Row({"kind": "lion-cub", **LION, "vote": "one-bit", "ties": "zero"}),
    "lion-cub-direct": Row({"kind": "lion-cub", **LION, "vote": "direct", "ties": "random"}),
    "lion-cub-server": Row({"kind": "lion-cub", **LION, "vote": "server-efficient", "ties": "plus", "beta2": 0.9}),
    "lion-cub-stochastic": Row({"kind": "lion-cub", **LION, "bits": 5, "p": "inf", "stochastic": True}),
    "lion-cub-momenta": Row({"kind": "lion-cub", **LION, "p": 0, "momentum_layers": "all", "momentum_period": 4}),
    "sign-sgd": Row(
        {"kind": "sign-sgd", **LION, "momentum": 0.9, "ties": "plus"},
        setting={},
        moves={
            "clip_norm": Moves(0.01, beside={"momentum": 0.9}),
            "wire": refused("bf16", "votes have formats of their own"),
            "vote": Moves("quantised", bytes=">"),
            "bits": Moves(4, bytes="<", beside={"vote": "quantised"}),
            "p": Moves(0.5, beside={"vote": "quantised"}),
            "stochastic": Moves(True, beside={"vote": "quantised", "p": "inf"}),
            "momentum": Moves(0.5, kept=">"),
        },
    ),
    "powersgd-cold": Row({"kind": "powersgd", "lr": 0.05, "rank": 1, "warm_start": False}),
    "one-bit-adam": Row(
        {"kind": "one-bit-adam", "lr": 0.001, "freeze_step": 10, "eps": 1e-4}, setting={"freeze_step": 4, "eps": 0.001}
    ),
    "one-bit-adam-mean": Row(
        {"kind": "one-bit-adam", "lr": 0.001, "freeze_step": 1, "scale": "mean", "eps": 1e-3, "clip_norm": 1.0}
    ),
    "zero-one-adam": Row(
        {**ZERO_ONE, "variant": "paper", "weight_decay": 0.1},
        setting={"freeze_step": 4, "eps": 0.001, "kappa": 2, "double_every": 4, "max_interval": 4},
        moves={
            "kappa": Moves(4, bytes=">"),
            "double_every": Moves(8, bytes=">"),
            "max_interval": Moves(2, bytes=">"),
            "variant": Moves("paper", bytes=">"),
        },
    ),
    "zero-one-adam-merged": Row({**ZERO_ONE, "kappa": 1, "double_every": 4, "scale": "mean"}),
    "zero-one-adam-code": Row({**ZERO_ONE, "kappa": 1, "variant": "code", "weight_decay": 0.1}),
    "ddp-top-k": Row({"kind": "ddp", **SGDM, "compressor": {"kind": "top-k", "fraction": 0.1}}),
    "ddp-qsgd": Row({"kind": "ddp", **SGDM, "compressor": {"kind": "qsgd", "bits": 6}}),
    "local-qsgd": Row({"kind": "local", **ADAM, "period": 8, "compressor": {"kind": "qsgd", "bits": 8}}),
    "mt-dao-l1": Row({**ONE_SLOW, "compressor": "lp"}),
    "mt-dao-own-periods-l1": Row(
        {
            **ONE_SLOW,
            "betas": [0.9, 0.999],
            "omegas": [0.3, 0.6],
            "period": 8,
            "momentum_periods": [6, 10],
            "second_moment_period": 7,
            "compressor": {"kind": "lp", "bits": 6},
        }
    ),
    "diloco-top-k": Row({"kind": "diloco", **ADAM, "period": 8, "compressor": {"kind": "top-k", "fraction": 0.1}}),
    "mt-dao-block-top-k": Row({**ONE_SLOW, "compressor": {"kind": "block-top-k", "k": 4, "chunk": 16}}),
    "local-block-top-k-random": Row(
        {
            "kind": "local",
            **SGDM,
            "period": 8,
            "compressor": {"kind": "block-top-k", "k": 4, "chunk": 8, "basis": "random"},
        }
    ),
    "diloco-one-bit": Row({"kind": "diloco", **ADAM, "period": 8, "compressor": "one-bit"}),
    "dion-8bit": Row({"kind": "dion", "exchange": "compressed", "compressor": "lp", "lr": 0.02, "other_lr": 0.003}),
    "demo-periodic": Row({"kind": "demo", "lr": 0.001, "k": 4, "chunk": 16, "period": 3}),
    "streaming-mt-dao": Row(
        {
            "kind": "streaming-mt-dao",
            "lr": 0.003,
            "betas": [0.99],
            "omegas": [0.9],
            "period": 8,
            "second_moment_period": 12,
            "stream": {"fragments": 3, "tau": 2, "alpha": 0.5},
        },
        setting={"period": 8, "stream": {"fragments": 2}},
        moves={
            "period": Moves(16, bytes="<"),
            "momentum_periods": Moves((16,), bytes="<"),
            "compressor": refused("top-k", "a reference that has moved on"),
            "phase": refused("paper", "streams are aligned"),
            "switch_step": refused(6, "streams from the first step"),
            "warmup_beta": inert(0.5, "of the steps before switch_step, of which there are none"),
        },
    ),
    "streaming-diloco": Row(
        {"kind": "streaming-diloco", "lr": 0.003, "period": 6, "stream": {"fragments": 2, "tau": 1, "alpha": 0.5}},
        setting={"period": 8, "stream": {"fragments": 2}},
        moves={"period": Moves(16, bytes="<")},
    ),
    "streaming-diloco-4-bits": Row(
        {
            "kind": "streaming-diloco",
            "lr": 0.003,
            "period": 6,
            "wire": "e3m0",
            "stream": {"fragments": 2, "strides": 2, "tau": 3, "alpha": 0.5, "in_backward": True},
        }
    ),
    "basis-rotation": Row(
        {**ROTATION, "frequency": 5},
        settled=False,
        setting={"frequency": 4},
        moves={"other_lr": Moves(0.0321), "momentum": Moves("rotated")},
    ),
    "basis-rotation-1st": Row({**ROTATION, "basis_source": "1st", "frequency": 4}, settled=False),
    "basis-rotation-unilateral": Row(
        {**UNILATERAL, "lr": 0.005, "frequency": 3, "eps": 0.05, "weight_decay": 0.1, "covariance_beta": 0.9}
    ),
    "basis-rotation-1st-unilateral": Row(
        {**UNILATERAL, "basis_source": "1st", "estimate": "exact", "frequency": 4}, settled=False
    ),
    "basis-rotation-frozen": Row({**ROTATION, "frequency": None, "compressor": "lp"}, settled=False),
    "soap": Row(
        {"kind": "soap", "lr": 0.003, "frequency": 5},
        settled=False,
        setting={"frequency": 4},
        moves={"other_lr": Moves(0.0321)},
    ),
    "eshampoo": Row(
        {"kind": "eshampoo", "lr": 0.003, "frequency": 5},
        settled=False,
        setting={"frequency": 4},
        moves={"other_lr": Moves(0.0321), "estimate": Moves("power")},
    ),
    "eshampoo-adaptive": Row(
        {"kind": "eshampoo", "lr": 0.003, "frequency": 2, "tolerance": 0.2, "weight_decay": 0.1}, settled=False
    ),
    "galore": Row(
        {"kind": "galore", "lr": 0.003, "frequency": 6},
        settled=False,
        setting={"frequency": 4},
        moves={"other_lr": Moves(0.0321), "estimate": Moves("power")},
    ),
    "ldadam": Row(
        {"kind": "ldadam", "lr": 0.003, "eps": 1e-3},
        settled=False,
        setting={},
        moves={
            "other_lr": Moves(0.0321),
            "rank_fraction": Moves(0.5, kept=">"),
            "layers": Moves(("v",), kept=">"),
        },
    ),
    "ldadam-full-rank": Row(
        {"kind": "ldadam", "lr": 0.003, "eps": 1e-3, "rank_fraction": 1.0, "weight_decay": 0.1}, settled=False
    ),
    "ldadam-forgetful": Row(
        {"kind": "ldadam", "lr": 0.003, "eps": 1e-3, "error_feedback": False, "rank_fraction": 0.5}, settled=False
    ),
    "des-loc": Row(
        {"kind": "des-loc", "lr": 0.003, "period": 4},
        setting={"period": 4, "momentum_period": 6, "second_moment_period": 8, "eps": 0.001},
    ),
    "des-loc-adopt": Row({"kind": "des-loc", "base": "adopt", "lr": 0.003, "period": 4, "second_moment_period": 9}),
}


def first_of_kinds(names: Iterable[str] = tuple(METHODS)) -> list[str]:
    """Return the first of these rows of each kind of method, number format and compressor: of what is exchanged."""
    rows: dict[tuple[str | None, ...], str] = {}
    for name in names:
        spec = METHODS[name].spec
        compressor = getattr(getattr(spec, "compressor", None), "kind", None)
        rows.setdefault((spec.kind, getattr(spec, "wire", None), compressor), name)
    return list(rows.values())


@dataclass(frozen=True)
class System:
    """Workers at their own pace by their method's fields, with what makes it the synchronous method if nobody is late.

    Every shared property of `tests/runs/training/elastic/test_systems.py` runs on it; none of ``asynchronous`` but what
    is in some row goes untested.
    """

    fields: dict[str, Any]
    punctual: dict[str, Any]


LOCAL = {"kind": "diloco", **SGD, "period": 4, "outer_lr": 1.0, "outer_momentum": 0.0}
OUTER = {"kind": "diloco", "lr": 0.02, "period": 4}

SYSTEMS: dict[str, System] = {
    "asynchronous-sgd": System({"kind": "ddp", **SGD, "asynchronous": {}}, {"buffer_size": 4}),
    "k-async-sgd": System(
        {"kind": "ddp", **SGD, "asynchronous": {"buffer_size": 2, "synchronous": True}}, {"buffer_size": 4}
    ),
    "fedasync": System({**LOCAL, "asynchronous": {"staleness_exponent": 0.5}}, {"buffer_size": 4}),
    "fedbuff": System(
        {**LOCAL, "asynchronous": {"buffer_size": 3, "staleness_exponent": 0.5, "participants": 3}},
        {"buffer_size": 4, "participants": 4},
    ),
    "delayed-nesterov": System(
        {
            **OUTER,
            "asynchronous": {
                "buffer_size": 4, "momentum": "delayed", "momentum_activation": 0.1, "dynamic_local_updates": True,
            },
        },
        {"momentum_activation": 0.0},
    ),
    "fedavg": System(
        {
            **LOCAL,
            "asynchronous": {
                "buffer_size": 2, "synchronous": True, "participants": 2, "update_weights": "tokens",
                "dynamic_local_updates": True,
            },
        },
        {"buffer_size": 4, "participants": 4},
    ),
    "decoupled-diloco": System(
        {
            **OUTER,
            "asynchronous": {
                "buffer_size": 2, "synchronous": True, "grace_period": 0.3, "update_weights": "token-rate",
                "reference": "server", "dynamic_local_updates": True,
            },
        },
        {"buffer_size": 4},
    ),
    "halos": System(
        {
            **OUTER,
            "asynchronous": {
                "buffer_size": 2, "momentum": "delayed",
                "hierarchy": {
                    "groups": 2, "merge_period": 2, "merge_weight": 0.5, "lr": 1.0, "momentum": 0.5, "buffer_size": 1,
                },
            },
        },
        {
            "buffer_size": 4, "momentum": "every", "synchronous": True,
            "hierarchy": {
                "groups": 1, "merge_period": 1, "merge_weight": 1.0, "lr": 1.0, "momentum": 0.0, "buffer_size": 1,
            },
        },
    ),
}  # fmt: skip
