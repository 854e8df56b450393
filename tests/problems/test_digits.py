from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import SpecError
from syncline.problems import Digits, Rows
from syncline.problems.digits import IMAGES_FILE, load_images, shards


def labels_per_worker(skew, world_size=10):
    labels = load_images().train_labels
    cut = shards(labels, world_size, skew, torch.Generator().manual_seed(0))
    return torch.tensor([len(labels[shard].unique()) for shard in cut])


def test_the_images_are_the_same_bits_wherever_they_are_from():
    """The checksum was taken of the same split of scikit-learn's copy, version 1.9.1."""
    images = load_images()
    tensors = (images.train, images.train_labels, images.validation, images.validation_labels)
    assert [tensor.dtype for tensor in tensors] == [torch.float64, torch.int64] * 2
    bits = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()
    assert bits == "6bba84b08b1619cb410ccee3d50d05fc5f11486b0c2751fa0c6e9b0c40f4d957"


def test_they_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    with np.load(IMAGES_FILE) as file:
        assert np.array_equal(file["images"], pixels) and np.array_equal(file["labels"], labels)


def test_the_split_covers_all_images_once():
    images = load_images()
    assert len(images.train) + len(images.validation) == 1797
    assert len(images.validation) == 359
    assert images.train.min() == 0
    assert images.train.max() == 1
    assert images.train_labels.unique().tolist() == images.validation_labels.unique().tolist() == list(range(10))


@given(world_size=st.integers(1, 300), skew=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_no_image_is_in_two_shards(world_size, skew, seed):
    labels = load_images().train_labels
    cut = shards(labels, world_size, skew, torch.Generator().manual_seed(seed))
    assert cut.shape == (world_size, len(labels) // world_size)
    assert len(cut.unique()) == cut.numel()


def test_skew_takes_labels_away():
    assert labels_per_worker(0.0).min() == 10
    assert labels_per_worker(1.0).max() <= 3
    images_of_a_top_label = []
    for skew in (0.0, 0.25, 0.5, 0.75, 1.0):
        cut = shards(load_images().train_labels, 10, skew, torch.Generator().manual_seed(0))
        top = [load_images().train_labels[shard].bincount().max().item() for shard in cut]
        images_of_a_top_label.append(sum(top))
    assert images_of_a_top_label == sorted(images_of_a_top_label)


def test_batches_come_from_the_workers_own_shard():
    task = Digits(skew=1.0, batch_size=64).build(Rows.whole_group(10))
    seen = [task.batch(step)[1] for step in range(20)]
    assert max(len(row.unique()) for row in torch.cat(seen, dim=1)) <= 3


def test_fresh_weights_are_uniform_in_torch_s_default_bounds():
    params = Digits(hidden=256).build(Rows.whole_group(1)).params
    for name, bound in (("0.weight", 1 / 8), ("0.bias", 1 / 8), ("2.weight", 1 / 16), ("2.bias", 1 / 16)):
        assert params[name].abs().max() <= bound
    assert params["0.weight"].std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.02)


def test_plain_sgd_learns_to_read():
    task = Digits().build(Rows.whole_group(1))
    for step in range(400):
        task.step_gradients(step)
        with torch.no_grad():
            for param in task.params.values():
                param.sub_(param.grad, alpha=0.5)
    metrics = task.evaluate({name: param.detach() for name, param in task.params.items()})
    assert metrics["accuracy"].item() > 0.93
    assert metrics["loss"].item() < 0.3


def test_untrained_networks_guess():
    task = Digits().build(Rows.whole_group(1, seeds=tuple(range(5))))
    metrics = task.evaluate({name: param.detach() for name, param in task.params.items()})
    assert metrics["loss"].tolist() == pytest.approx([math.log(10)] * 5, abs=0.1)


def test_flops_are_six_per_weight_and_image():
    assert Digits(hidden=16, batch_size=4).build(Rows.whole_group(1)).flops_per_step == 6 * (64 * 16 + 16 * 10) * 4


def test_more_workers_than_images_are_refused():
    with pytest.raises(SpecError, match=r"^workers: got 2000; expected at most 1438 workers"):
        Digits().build(Rows.whole_group(2000))


@pytest.mark.parametrize(("field", "value"), [("skew", 1.5), ("skew", -0.1), ("hidden", 0), ("batch_size", 0)])
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(SpecError, match=rf"^problem\.{field}: got {value}; expected "):
        Digits(**{field: value})


def test_by_site_labels_differ_from_site_to_site_alone():
    labels = load_images().train_labels
    cut = shards(labels, 8, 1.0, torch.Generator().manual_seed(0), sites=2)
    assert len(cut.unique()) == cut.numel()
    seen = [set(labels[shard].tolist()) for shard in cut]
    assert all(len(one) >= 4 for one in seen) and all(one == seen[0] for one in seen[:4])
    assert len(set.union(*seen[:4]) & set.union(*seen[4:])) <= 1  # the label at the cut
    by_worker = shards(labels, 8, 1.0, torch.Generator().manual_seed(0))
    assert {*cut[:4].flatten().tolist()} == {*by_worker[:4].flatten().tolist()}
    assert torch.equal(
        shards(labels, 8, 1.0, torch.Generator().manual_seed(0), sites=8).sort(1)[0], by_worker.sort(1)[0]
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"sites": 2}, "none without a skew"), ({"skew": 0.5, "sites": 0}, "at least 1"), ({"skew": 2}, "from 0 .alike")],
)
def test_sites_that_cannot_be_are_refused(fields, said):
    with pytest.raises(SpecError, match=said):
        Digits(**fields)


def test_more_sites_than_workers_are_refused():
    with pytest.raises(SpecError, match=r"problem.sites: got 5; expected at most 4"):
        Digits(skew=0.5, sites=5).build(Rows.whole_group(4))
