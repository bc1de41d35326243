"""What the training loop does to images."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is tested are its tensors")

from cloakwork.training.fit import Schedule, distance, erased, fit, mirrored, shifted  # noqa: E402

SIDE = 5


def of_seed(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(400, 784), (400, 1, 28, 28), (400, 3, 32, 24)], ids=str)
def test_a_square_is_blanked_in_every_image(shape: tuple[int, ...]) -> None:
    """Of the side where it lies inside, smaller at the borders; the same in all channels, another in every image."""
    x = torch.ones(shape)
    found = erased(x, SIDE, of_seed(1))
    assert found.shape == x.shape and bool((x == 1).all())
    planes = found.view(len(x), *(shape[1:] if len(shape) == 4 else (1, 28, 28)))
    assert bool((planes == planes[:, :1]).all())
    blank = planes[:, 0] == 0
    rows, columns = (blank.any(dim=axis).sum(dim=1) for axis in (2, 1))
    assert torch.equal(rows * columns, blank.sum(dim=(1, 2)))  # a rectangle without holes
    assert int(rows.max()) == int(columns.max()) == SIDE
    assert int(rows.min()) == int(columns.min()) == SIDE // 2 + 1
    assert len(torch.unique(blank, dim=0)) > 200
    assert bool(blank[:, 0, 0].any()) and bool(blank[:, -1, -1].any())
    assert torch.equal(found, erased(x, SIDE, of_seed(1)))


def test_images_move_by_at_most_so_many_pixels() -> None:
    """One pixel that is set, in the middle: it goes everywhere within the range, and nowhere else."""
    x = torch.zeros(500, 3, 9, 9)
    x[:, :, 4, 4] = 1
    found = shifted(x, 2, of_seed(2))
    assert bool((found.sum(dim=(2, 3)) == 1).all())
    reached = found[:, 0].sum(dim=0) > 0
    assert bool(reached[2:7, 2:7].all()) and int(reached.sum()) == 25


def test_about_half_of_the_images_are_mirrored() -> None:
    """Between 400 and 600 of 1,000: outside of it once in 10^9."""
    x = torch.arange(8.0).expand(1000, 1, 2, 8)
    found = mirrored(x, of_seed(3))
    turned = found[:, 0, 0, 0] == 7
    assert torch.equal(found[turned], x[turned].flip(-1)) and torch.equal(found[~turned], x[~turned])
    assert 400 < int(turned.sum()) < 600


def test_fewer_images_than_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a batch of 8 at least, got 7"):
        fit(torch.nn.Linear(4, 2), np.zeros((7, 4), np.float32), np.zeros(7, np.int64), Schedule(1, batch=8))


def of_squares(*widths: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def test_a_teacher_counts_more_than_labels() -> None:
    """With labels that say nothing the pupil learns what the teacher says, which stays as it is; without it there is nothing to learn."""
    torch.manual_seed(1)
    random = np.random.default_rng(4)
    x, labels = random.standard_normal((600, 4)).astype(np.float32), random.integers(0, 3, 600)
    teacher = of_squares(4, 16, 3)
    with torch.no_grad():
        teacher[2].weight *= 20
        wanted = teacher(torch.from_numpy(x)).argmax(dim=1)
    before = {name: each.clone() for name, each in teacher.state_dict().items()}
    same = {}
    for name, helper in (("taught", teacher), ("alone", None)):
        torch.manual_seed(2)
        pupil = of_squares(4, 16, 3)
        fit(pupil, x, labels, Schedule(30, batch=50, learning_rate=2e-2), teacher=helper)
        same[name] = float((pupil(torch.from_numpy(x)).argmax(dim=1) == wanted).float().mean())
    assert same["taught"] > 0.9 and same["alone"] < 0.75, same
    assert all(torch.equal(before[name], each) for name, each in teacher.state_dict().items())
    assert all(each.grad is None for each in teacher.parameters())


def test_the_distance_from_a_teacher_is_that_of_softened_scores() -> None:
    """Against sums of p log(p / q) with temperature 4, by hand; no scores are further from themselves than 0."""
    random = np.random.default_rng(5)
    ours, theirs = random.standard_normal((2, 7, 3)) * 6
    p, q = (np.exp(scores / 4) / np.exp(scores / 4).sum(axis=1, keepdims=True) for scores in (theirs, ours))
    expected = 16 * (p * np.log(p / q)).sum(axis=1).mean()
    assert float(distance(torch.from_numpy(ours), torch.from_numpy(theirs))) == pytest.approx(expected, rel=1e-9)
    assert float(distance(torch.from_numpy(ours), torch.from_numpy(ours))) == pytest.approx(0, abs=1e-12)
