"""The recipes run: one epoch on a few images, files that compile, the same result for the same seed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch")

import cloakwork as cw  # noqa: E402
from cloakwork.models import zoo  # noqa: E402
from cloakwork.models.calibration import Calibration  # noqa: E402
from cloakwork.training import publish, recipes  # noqa: E402
from cloakwork.training.fit import Schedule  # noqa: E402
from cloakwork.training.recipes import (  # noqa: E402
    cifar10_resnet,
    cifar10_teacher,
    cifar10_vgg,
    mnist_cnn,
    mnist_mlp_1x30,
    mnist_mlp_3x1024,
    mnist_strided,
    networks,
    tuned,
)
from cloakwork.training.recipes import recipe as shared  # noqa: E402

RNG = np.random.default_rng(11)
CENTRES = RNG.uniform(0, 1, (10, 784))
LABELS = RNG.integers(0, 10, 1000)
IMAGES = np.clip(CENTRES[LABELS] + 0.2 * RNG.standard_normal((1000, 784)), 0, 1)
QUICK = Schedule(8, batch=50, learning_rate=4e-3)
FEW = slice(0, 400)
COLOURS = np.stack([np.arange(10) // 4, np.arange(10) % 4, np.arange(10) % 2], axis=1)[:, :, None, None] / 3
PICTURES = np.clip(COLOURS[LABELS[FEW]] + 0.1 * RNG.standard_normal((400, 3, 32, 32)), 0, 1).astype(np.float32)


@pytest.fixture
def made_up_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"train": (IMAGES, LABELS), "test": (IMAGES[:300], LABELS[:300])}
    monkeypatch.setattr(shared, "load_mnist", parts.__getitem__)


@pytest.fixture
def made_up_images(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"mnist": IMAGES, "cifar10": PICTURES}
    monkeypatch.setattr(tuned, "load_images", lambda name, part: (data[name][:400], LABELS[FEW]))


@pytest.mark.parametrize(
    "name",
    [
        "mnist-mlp-1x30",
        *(pytest.param(name, marks=pytest.mark.tier("all")) for name in ("mnist-mlp-3x1024", "mnist-cnn")),
    ],
)
def test_a_recipe_learns_and_its_file_compiles(
    name: str, tmp_path: Path, made_up_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mnist_mlp_3x1024, "WIDTH", 96)
    monkeypatch.setattr(
        mnist_cnn, "RECIPE", replace(mnist_cnn.RECIPE, build=lambda noise: mnist_cnn.build(noise, 6, 8))
    )
    for module in (mnist_mlp_1x30, mnist_mlp_3x1024, mnist_cnn):
        monkeypatch.setattr(module, "RECIPE", replace(module.RECIPE, schedule=QUICK))
    seen: list[tuple[int, int, float]] = []
    trained = recipes.train(name, tmp_path / "m.onnx", progress=lambda *report: seen.append(report))
    assert trained.accuracy_clear > 0.7
    assert seen and seen[-1][0] == seen[-1][1]
    ranges = IMAGES[:200] if trained.ranges is None else Calibration.from_json(trained.ranges)
    model = cw.compile(trained.path, ranges, **trained.compile)
    assert (model.predict(IMAGES[:100]).argmax(axis=1) == LABELS[:100]).mean() > 0.6


@pytest.mark.tier("all")
@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")  # what is learned differs by processor
@pytest.mark.parametrize(
    ("module", "build"),
    [
        (mnist_strided, lambda noise: mnist_strided.build(noise, (4, 8))),
        pytest.param(
            cifar10_vgg,
            lambda noise: networks.network(cifar10_vgg.shape(4), noise),
            marks=pytest.mark.tier("release"),
        ),
        pytest.param(
            cifar10_resnet,
            lambda noise: networks.network(cifar10_resnet.strided(3, (1, 1, 1)), noise),
            marks=pytest.mark.tier("release"),
        ),
    ],
)
def test_a_tuned_recipe_learns_and_its_file_compiles(
    module: Any, build: Any, tmp_path: Path, made_up_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(module.RECIPE.schedule, batch=20, learning_rate=0.05 if module.RECIPE.schedule.momentum else 4e-3)
    tuning = replace(module.RECIPE.tuning, batch=20, learning_rate=2e-3)
    teacher = None if module.RECIPE.teacher is None else tuned.Teacher(lambda: build(None), quick)
    small = replace(module.RECIPE, build=build, schedule=quick, tuning=tuning, teacher=teacher)
    monkeypatch.setattr(module, "RECIPE", small)
    trained = recipes.train(module.RECIPE.name, tmp_path / "m.onnx", epochs=6)
    assert trained.data == recipes.data_of(module.RECIPE.name) == module.RECIPE.data
    assert trained.epochs == 6
    assert trained.accuracy_clear > 0.5 and trained.accuracy_noisy > 0.4
    images, labels = tuned.load_images(trained.data, "train")
    model = cw.compile(trained.path, images[:100].astype(float), **trained.compile, allow_loss=True)
    assert module.RECIPE.compile is not None or model.program.parameters.name == module.RECIPE.parameter_set
    assert model.report()["bootstraps"] == networks.lookups(build(None), images.shape[1:])
    answers = model.predict(images[:40].astype(float), how="simulate", seed=1).argmax(axis=1)
    assert (answers == labels[:40]).mean() > 0.4


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (cifar10_vgg.shape(), 49_152),
        (cifar10_vgg.shape(56, 2), 50_176),
        (cifar10_resnet.strided(), 90_112),
        (cifar10_resnet.strided(64, growth=2), 98_304),
        (cifar10_resnet.resnet20(), 188_416),
    ],
)
def test_look_ups_are_the_outputs_of_activations(shape: networks.Shape, expected: int) -> None:
    assert networks.lookups(networks.network(shape, None), (3, 32, 32)) == expected


def test_a_teacher_costs_many_times_what_it_teaches() -> None:
    """It is for networks that are encrypted; nobody should take it for one."""
    pupils = (networks.lookups(module.RECIPE.build(None), (3, 32, 32)) for module in (cifar10_vgg, cifar10_resnet))
    assert networks.lookups(cifar10_teacher.build(), (3, 32, 32)) > 4 * max(pupils)


def test_the_same_seed_gives_the_same_file(tmp_path: Path, made_up_mnist: None) -> None:
    first, second = (recipes.train("mnist-mlp-1x30", tmp_path / f"{i}.onnx", epochs=1) for i in range(2))
    assert first.path.read_bytes() == second.path.read_bytes()


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(KeyError, match="mnist-cnn"):
        recipes.train("mnist", Path("x.onnx"))


@pytest.mark.os_entropy  # a process, which draws nothing
def test_without_pytorch_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import cloakwork.training.layers"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert result.returncode != 0
    assert "pip install '.[train]'" in result.stderr


@pytest.mark.tier("all")
def test_a_card_has_the_figures_of_what_the_zoo_loads(
    tmp_path: Path, made_up_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From ranges, as there are no images then: not those of the program that images make."""
    build, recipe = mnist_strided.build, mnist_strided.RECIPE
    quick = replace(recipe, build=lambda noise: build(noise, (4, 8)), schedule=replace(recipe.schedule, batch=20))
    monkeypatch.setattr(mnist_strided, "RECIPE", replace(quick, tuning=replace(recipe.tuning, batch=20)))
    path = mnist_strided.train(tmp_path / "m.onnx", epochs=3).path
    images, labels = tuned.load_images("mnist", "test")
    monkeypatch.setattr(publish, "load_images", lambda data, part: (images, labels))
    monkeypatch.setattr(publish, "calibration_images", lambda data, count: images[:100])
    (tmp_path / "zoo").mkdir()
    told = publish.publish(
        "some", path, description="small", recipe="", seed=1, options={"sets": ["nn05"]}, folder=tmp_path / "zoo"
    )
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    model, facts = zoo.load_model("some"), zoo.card("some").facts
    assert told == {key: facts[key] for key in told}
    simulated = model.predict(images, how="simulate", seed=1).argmax(axis=1)
    assert facts["accuracy_simulated"] == round(float((simulated == labels).mean()), 4)
    assert facts["bootstraps"] == model.program.bootstraps
    with_images = cw.compile(path, images[:100].astype(float), sets=["nn05"], allow_loss=True)
    assert with_images.program.digest != model.program.digest


@pytest.mark.tier("all")
def test_a_recipe_that_keeps_its_program_is_published_as_it_was_measured(
    tmp_path: Path, made_up_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled with images, not with the ranges that are left of them."""
    recipe = mnist_strided.RECIPE
    quick = replace(recipe.schedule, batch=20)
    build = mnist_strided.build
    small = replace(recipe, build=lambda noise: build(noise, (4, 8)), schedule=quick, keeps_program=True)
    monkeypatch.setattr(mnist_strided, "RECIPE", replace(small, tuning=replace(recipe.tuning, batch=20)))
    trained = mnist_strided.train(tmp_path / "m.onnx", epochs=3)
    assert trained.keeps_program
    images, labels = tuned.load_images("mnist", "test")
    monkeypatch.setattr(publish, "load_images", lambda data, part: (images, labels))
    monkeypatch.setattr(publish, "calibration_images", lambda data, count: images[:100].astype(float))
    (tmp_path / "zoo").mkdir()
    options = {"sets": ["nn05"]}
    told = publish.publish(
        "some",
        trained.path,
        description="small",
        recipe="",
        seed=1,
        options=options,
        keeps_program=True,
        folder=tmp_path / "zoo",
    )
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    model, card = zoo.load_model("some"), zoo.card("some")
    assert card.is_program and card.facts["compiled_with"] == options and card.calibration is None
    simulated = model.predict(images, how="simulate", seed=1).argmax(axis=1)
    assert told["accuracy_simulated"] == round(float((simulated == labels).mean()), 4)
    expected = cw.compile(trained.path, images[:100].astype(float), **options)
    np.testing.assert_array_equal(model.predict(images[:20]), expected.predict(images[:20]))
