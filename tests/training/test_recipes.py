"""The recipes run: one epoch on a few images, files that compile, the same result for the same seed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch")

import cloakwork as cw  # noqa: E402
from cloakwork.models import zoo  # noqa: E402
from cloakwork.training import publish, recipes  # noqa: E402
from cloakwork.training.recipes import cifar10, mnist, networks, recipe  # noqa: E402

RNG = np.random.default_rng(11)
LABELS = RNG.integers(0, 10, 400)
IMAGES = np.clip(RNG.uniform(0, 1, (10, 784))[LABELS] + 0.2 * RNG.standard_normal((400, 784)), 0, 1)
COLOURS = np.stack([np.arange(10) // 4, np.arange(10) % 4, np.arange(10) % 2], axis=1)[:, :, None, None] / 3
PICTURES = np.clip(COLOURS[LABELS] + 0.1 * RNG.standard_normal((400, 3, 32, 32)), 0, 1).astype(np.float32)
SMALL = {
    "mnist-mlp-1x30": lambda: mnist.mlp(30),
    "mnist-mlp-3x1024": lambda: mnist.mlp(96, 96, 96),
    "mnist-cnn": lambda: mnist.pooled(6, 8),
    "mnist-strided": lambda: mnist.strided((4, 8)),
    "cifar10-vgg": lambda: networks.network(cifar10.vgg(4)),
    "cifar10-resnet": lambda: networks.network(cifar10.strided(3, (1, 1, 1))),
}
TIERS = {
    "mnist-mlp-1x30": (),
    "cifar10-vgg": pytest.mark.tier("release"),
    "cifar10-resnet": pytest.mark.tier("release"),
}


@pytest.fixture(autouse=True)
def made_up_images(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"mnist": IMAGES, "cifar10": PICTURES}
    monkeypatch.setattr(recipe, "load_images", lambda name, part: (data[name], LABELS))
    monkeypatch.setattr(publish, "load_images", lambda name, part: (data[name][:300], LABELS[:300]))
    monkeypatch.setattr(publish, "calibration_images", lambda name, count: data[name][:100].astype(float))


def made_small(name: str, monkeypatch: pytest.MonkeyPatch) -> recipe.Recipe:
    """A recipe of a small network, taught by one like it, in batches that a few images fill."""
    table = (mnist if name.startswith("mnist") else cifar10).RECIPES
    whole, build = table[name], SMALL[name]
    schedule = replace(whole.schedule, batch=20, learning_rate=0.05 if whole.schedule.momentum else 4e-3)
    teacher = None if whole.teacher is None else recipe.Teacher(build, schedule)
    tuning = replace(whole.tuning, batch=20, learning_rate=2e-3)
    small = replace(whole, build=build, schedule=schedule, tuning=tuning, teacher=teacher)
    monkeypatch.setitem(table, name, small)
    return small


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")  # what is learned differs by processor
@pytest.mark.parametrize("name", [pytest.param(n, marks=TIERS.get(n, pytest.mark.tier("all"))) for n in SMALL])
def test_a_recipe_learns_and_its_file_compiles(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = made_small(name, monkeypatch)
    reports: list[tuple[int, int, float]] = []
    trained = recipes.train(name, tmp_path / "m.onnx", epochs=6, progress=lambda *report: reports.append(report))
    assert reports and reports[-1][0] == reports[-1][1]
    assert trained.data == recipes.data_of(name) == small.data and trained.epochs == 6
    assert trained.accuracy_clear > 0.5 and trained.accuracy_noisy > 0.4
    images, labels = recipe.load_images(trained.data, "train")
    model = cw.compile(trained.path, images[:100].astype(float), **trained.compile, allow_loss=True)
    assert small.compile is not None or model.program.parameters.name == small.parameter_set
    if name != "mnist-cnn":  # whose maxima are look-ups too
        assert model.report()["bootstraps"] == networks.lookups(small.build(), images.shape[1:])
    answers = model.predict(images[:40].astype(float), how="simulate", seed=1).argmax(axis=1)
    assert (answers == labels[:40]).mean() > 0.4


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (cifar10.vgg(), 49_152),
        (cifar10.vgg(56, 2), 50_176),
        (cifar10.strided(), 90_112),
        (cifar10.strided(64, growth=2), 98_304),
        (cifar10.resnet20(), 188_416),
    ],
)
def test_look_ups_are_the_outputs_of_activations(shape: networks.Shape, expected: int) -> None:
    assert networks.lookups(networks.network(shape), (3, 32, 32)) == expected


def test_a_teacher_costs_many_times_what_it_teaches() -> None:
    """It is for networks that are encrypted; nobody should take it for one."""
    pupils = (networks.lookups(each.build(), (3, 32, 32)) for each in cifar10.RECIPES.values())
    assert networks.lookups(cifar10.TEACHER.build(), (3, 32, 32)) > 4 * max(pupils)


def test_the_same_seed_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_small("mnist-mlp-1x30", monkeypatch)
    first, second = (recipes.train("mnist-mlp-1x30", tmp_path / f"{i}.onnx", epochs=2) for i in range(2))
    assert first.path.read_bytes() == second.path.read_bytes()


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(KeyError, match="mnist-cnn"):
        recipes.train("mnist", Path("x.onnx"))


@pytest.mark.os_entropy  # a process, which draws nothing
def test_without_pytorch_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import cloakwork.training.fit"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert result.returncode != 0
    assert "pip install '.[train]'" in result.stderr


@pytest.mark.tier("all")
def test_a_model_is_published_as_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_small("mnist-strided", monkeypatch)
    trained = recipes.train("mnist-strided", tmp_path / "m.onnx", epochs=3)
    (tmp_path / "zoo").mkdir()
    options = {"sets": ["nn05"], "allow_loss": True}
    figures = publish.publish(
        "some",
        trained.path,
        description="small",
        recipe="",
        seed=1,
        data="mnist",
        options=options,
        folder=tmp_path / "zoo",
    )
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    model, facts = zoo.load_model("some"), zoo.card("some").facts
    assert figures == {key: facts[key] for key in figures} and facts["compiled_with"] == options
    simulated = model.predict(IMAGES[:300], how="simulate", seed=1).argmax(axis=1)
    assert facts["accuracy_simulated"] == round(float((simulated == LABELS[:300]).mean()), 4)
    expected = cw.compile(trained.path, IMAGES[:100], **options)
    np.testing.assert_array_equal(model.predict(IMAGES[:20]), expected.predict(IMAGES[:20]))
