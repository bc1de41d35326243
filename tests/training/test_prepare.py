"""`prepare`: an ordinary module feels the noise of encryption in training, and leaves as ONNX what it was trained to be."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import onnxruntime
import pytest
from cases import in_tiers

torch = pytest.importorskip("torch", reason="training needs PyTorch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import cloakwork as cw  # noqa: E402
from cloakwork.training.noisy_max_pool import NoisyMaxPool  # noqa: E402
from cloakwork.training.preparation import Prepared, prepare, trained_options  # noqa: E402
from cloakwork.training.simulation import LookupNoise, LookupResult, RoundedLayer, RowsSeen  # noqa: E402


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Residual(nn.Module):
    """A forward of its own: a padded block with SiLU written out, an add in place, a method for a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.block = nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 1)
        )
        self.head = nn.Linear(6 * 4, 3)

    def forward(self, x):
        y = self.norm(self.first(x))
        y = y * torch.sigmoid(y)
        y += self.block(y)
        y = functional.avg_pool2d(functional.hardswish(y), 4)
        return self.head(y.view(y.size(0), -1))


class Branches(nn.Module):
    """Concatenation, a leaky ReLU by `where`, a mean over positions, functional dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(2, 4, 3, stride=2), nn.Conv2d(2, 3, 3, stride=2)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        a, b = self.left(x), torch.tanh(self.right(x))
        y = torch.cat([torch.where(a > 0, a, 0.1 * a), b], dim=1)
        y = functional.dropout(y.mean(dim=(2, 3)), 0.5, self.training)
        return self.head(y)


def pooled() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding="same", groups=2), nn.GELU(), nn.MaxPool2d(3, stride=2, padding=1),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 3),
    )  # fmt: skip


def table() -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm1d(10), nn.Linear(10, 16), nn.BatchNorm1d(16), nn.Mish(), nn.Linear(16, 8), nn.ReLU6(), nn.Linear(8, 1), nn.Sigmoid()
    )  # fmt: skip


def signal() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(2, 6, 5, stride=2), nn.ELU(), nn.MaxPool1d(3), nn.Conv1d(6, 6, 3, padding=1, groups=6), nn.Conv1d(6, 4, 1),
        nn.PReLU(4), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (2, 8, 8)),
    "branches": (Branches, (2, 9, 9)),
    "pooled": (pooled, (2, 8, 8)),
    "table": (table, (10,)),
    "signal": (signal, (2, 40)),
}


# Compiling takes seconds: two cases in every run, the others in tier `all`.
COMPILED = in_tiers(CASES, quick=("branches", "table"))


def trained(name: str, samples: int = 64) -> tuple[nn.Module, torch.Tensor]:
    """In evaluation mode; batch normalisation has seen batches."""
    make, shape = CASES[name]
    module, x = make(), torch.randn(samples, *shape) * 2 + 0.5
    module.train()
    for _ in range(3):
        module(x)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 2.0)
            nn.init.normal_(norm.bias)
    return module.eval(), x


@pytest.mark.parametrize("name", CASES)
def test_in_evaluation_it_is_the_module_and_in_training_noisy(name: str) -> None:
    module, x = trained(name)
    state = copy.deepcopy(module.state_dict())
    prepared = prepare(module, x)
    assert not prepared.training
    with torch.no_grad():
        torch.testing.assert_close(prepared(x), module(x), rtol=1e-4, atol=1e-5)
        prepared.simulated = True
        noisy = prepared(x)
        assert not torch.equal(noisy, prepared(x))
        prepared.simulated = False
        torch.testing.assert_close(prepared(x), module(x), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items())
    assert not any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in prepared.modules())


@pytest.mark.parametrize("name", CASES)
def test_gradients_reach_every_parameter(name: str) -> None:
    module, x = trained(name)
    prepared = prepare(module, x).train()
    (prepared(x).square().mean() + 0.01 * prepared.range_penalty()).backward()
    for key, parameter in prepared.named_parameters():
        assert parameter.grad is not None, key
        assert bool(torch.isfinite(parameter.grad).all()), key
    assert sum(float(p.grad.abs().sum()) for p in prepared.parameters()) > 0


@pytest.mark.parametrize("name", CASES)
def test_onnx_computes_what_it_does_without_noise(name: str, tmp_path) -> None:
    module, x = trained(name)
    prepared = prepare(module, x, parameter_set="nn1").train()
    optimiser = torch.optim.SGD(prepared.parameters(), 1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        prepared(x).square().mean().backward()
        optimiser.step()
    path = tmp_path / "model.onnx"
    prepared.export(path)
    assert prepared.training  # as it was
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": x.numpy()})
    with torch.no_grad():
        expected = prepared.eval()(x).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(expected, module(x).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("name", COMPILED)
def test_the_compiler_takes_it_with_the_set_it_was_trained_for(name: str) -> None:
    module, x = trained(name, 200)
    prepared = prepare(module, x, parameter_set="nn1_wide")
    model = cw.compile(prepared.to_onnx(), x.numpy(), **trained_options(prepared), accuracy=0)
    assert model.program.parameters.name == "nn1_wide"
    with torch.no_grad():
        clear = prepared.eval()(x).numpy()
    assert np.sqrt(np.square(model.predict(x.numpy()) - clear).mean()) < 0.25 * clear.std()


@pytest.mark.parametrize("name", COMPILED)
def test_noise_in_training_is_that_of_the_compiled_program(name: str) -> None:
    """Errors of the output agree within a factor: training knows neither the rounding that the data chooses nor the last digits of scales."""
    module, x = trained(name, 300)
    prepared = prepare(module, x, parameter_set="nn2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of accuracy, and of values beyond the ranges
        model = cw.compile(prepared.to_onnx(), x.numpy(), **trained_options(prepared), allow_loss=True)
    with torch.no_grad():
        clear = prepared(x)
        prepared.simulated = True
        trained_with = torch.stack([prepared(x) - clear for _ in range(4)]).numpy()
    compiled = np.stack([model.predict(x.numpy(), how="simulate", seed=i) - clear.numpy() for i in range(4)])
    ratio = float(np.sqrt(np.square(trained_with).mean() / np.square(compiled).mean()))
    assert 0.4 < ratio < 2.0, ratio


# What is put where.


def parts(prepared: Prepared, kind: type) -> list[nn.Module]:
    return [part for part in prepared.modules() if isinstance(part, kind)]


def outputs(prepared: Prepared) -> list[RowsSeen]:
    return [part for part in parts(prepared, RowsSeen) if part.is_output]


def test_a_function_of_one_number_is_one_lookup_however_written() -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 2)

        def forward(self, x):
            y = self.first(x)
            y = y * (y + 3).clamp(0, 6) / 6
            return self.second(torch.exp(-y.abs()) + 0.5 * y)

    prepared = prepare(Written(), torch.randn(20, 6))
    assert len(parts(prepared, RowsSeen)) == 2  # of the function, and of the output
    assert len(outputs(prepared)) == 1
    assert len(parts(prepared, LookupResult)) == 2  # the input, and the function
    assert len(parts(prepared, RoundedLayer)) == 2


def test_a_residual_value_is_read_with_noise_by_lookups_alone() -> None:
    class Before(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            x = self.first(x)
            x = x + self.inner(functional.silu(x))
            return self.last(functional.relu(x))

    prepared = prepare(Before(), torch.randn(50, 6))
    by_name = dict(prepared.network.named_modules())
    code = prepared.network.code
    assert "inner = None" in code or "inner(" in code
    layers = {name: part for name, part in by_name.items() if isinstance(part, RoundedLayer)}
    assert [len(part.sources) for part in layers.values()] == [1, 1, 1]
    assert len(parts(prepared, RowsSeen)) == 3
    # The first layer's rows fill two ranges: that of the first function, and that of the sum.
    assert len(layers["first"].targets) == 2


def test_layers_without_a_function_between_get_a_lookup_of_the_identity() -> None:
    prepared = prepare(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2)), torch.randn(20, 6))
    assert len(parts(prepared, RowsSeen)) == 2
    assert len(parts(prepared, LookupResult)) == 2


def test_a_function_at_the_end_is_the_clients() -> None:
    for last in ([nn.Sigmoid()], [nn.Softmax(dim=1)], [nn.LogSoftmax(dim=-1)], [nn.Tanh(), nn.Unflatten(1, (3, 1))]):
        prepared = prepare(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3), *last), torch.randn(20, 6))
        assert len(outputs(prepared)) == 1
        assert len(parts(prepared, RowsSeen)) == 2
        assert len(parts(prepared, LookupResult)) == 2


def test_max_pools_come_before_functions_that_never_fall() -> None:
    prepared = prepare(trained("pooled")[0], trained("pooled")[1])
    first, second = parts(prepared, NoisyMaxPool)
    order = [str(node.target) for node in prepared.network.graph.nodes]
    assert len(first.level_seen) == 2 and len(second.level_seen) == 4
    assert order.index("3") < order.index("2")  # pool, relu
    assert order.index("5") < order.index("6")  # gelu falls below zero: before its pool


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": 1, "dilation": (2, 1)},
        {"kernel_size": 3, "ceil_mode": True},
    ],
)
def test_the_tree_of_a_max_pool_takes_maxima(settings) -> None:
    pool = NoisyMaxPool(nn.MaxPool2d(**settings), 2, prepare(nn.Linear(2, 2), torch.randn(9, 2)).noise)
    x = torch.randn(3, 2, 9, 10) - 3
    pool.simulated = True
    for part in (pool, *pool.level_seen, *pool.level_results):
        part.quiet = True
    torch.testing.assert_close(pool(x), pool.plain(x))


def test_rounding_is_half_a_step_at_most_and_follows_scales() -> None:
    module, x = trained("table")
    prepared = prepare(module, x, parameter_set="nn2").train()
    for layer in parts(prepared, RoundedLayer):
        integers = layer.inner.weight.detach() / layer.steps()
        assert float(integers.abs().flatten(1).amax(dim=1).median()) <= 127.5
    first, second, _ = parts(prepared, RoundedLayer)
    assert float((first.inner.weight.detach() / first.steps()).abs().max()) > 60  # on the input: 8 bits
    assert float((second.inner.weight.detach() / second.steps()).abs().max()) < 40  # on noisy results: fewer


def test_columns_of_very_different_size_have_steps_of_their_own() -> None:
    x = torch.randn(200, 4) * torch.tensor([1e-2, 1.0, 1e2, 1e4])
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        module[0].weight /= x.std(dim=0)
    layer = parts(prepare(module, x), RoundedLayer)[0]
    relative = (layer.steps() / layer.inner.weight.detach().abs().mean(dim=0)).mean(dim=0)
    assert float(relative.max() / relative.min()) < 10


def test_noise_is_the_engines_model() -> None:
    """docs/reference/parameters.md: nn2 at norm 4 has 1.96 % of the half torus."""
    noise = LookupNoise.of("nn2")
    assert 200 * (16 * noise.blind_rotation + noise.switching) ** 0.5 == pytest.approx(1.96, abs=0.01)
    seen = RowsSeen(2, noise).train()
    x = torch.stack([torch.linspace(-1, 1, 4000), torch.linspace(0, 10, 4000)], dim=1)
    seen.quiet = True
    assert torch.equal(seen(x), x)
    seen.quiet = False
    added = torch.cat([seen(x) - x for _ in range(10)]).numpy()
    expected = np.array([1.0, 5.0]) * noise.switching**0.5 / seen.limit()
    np.testing.assert_allclose(added.std(axis=0), expected, rtol=0.03)
    assert (np.abs(added.mean(axis=0)) < 4 * expected / np.sqrt(len(added))).all()


def test_ranges_grow_at_once_and_shrink_slowly() -> None:
    seen = RowsSeen(1, LookupNoise.of("nn2")).train()
    seen.quiet = True
    seen(torch.tensor([[-1.0], [1.0]]))
    seen(torch.tensor([[-1.0], [3.0]]))
    assert float(seen.high) == 2.0
    seen(torch.tensor([[-1.0], [0.0]]))
    assert 1.9 < float(seen.high) < 2.0 and float(seen.low) == -1.0


# What it is asked for.


def test_the_set_is_the_cheapest_that_training_can_make_do() -> None:
    easy = prepare(nn.Sequential(nn.Linear(30, 2)), torch.randn(60, 30))
    deep = nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(12, 12), nn.Tanh())], nn.Linear(12, 3))
    hard = prepare(deep, torch.randn(60, 12))
    assert easy.parameter_set != hard.parameter_set
    assert hard.noise.blind_rotation < easy.noise.blind_rotation
    assert trained_options(hard) == {"sets": [hard.parameter_set]}


def test_a_prepared_module_is_copied_and_kept_as_state() -> None:
    module, x = trained("pooled")
    prepared = prepare(module, x).train()
    (prepared(x).mean() + prepared.range_penalty()).backward()
    twin = copy.deepcopy(prepared).eval()
    fresh = prepare(module, x.numpy()).eval()  # an array does as well
    fresh.load_state_dict(prepared.state_dict())
    prepared.eval()
    with torch.no_grad():
        torch.testing.assert_close(twin(x), prepared(x))
        torch.testing.assert_close(fresh(x), prepared(x))


def test_preparing_leaves_the_random_numbers_alone() -> None:
    module, x = trained("pooled")
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    prepare(module, x)
    assert torch.equal(torch.rand(4), expected)


def test_an_untrained_norm_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"'0' \(BatchNorm1d\) has seen no batch"):
        prepare(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), torch.randn(8, 4))


def test_double_precision_stays() -> None:
    prepared = prepare(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double(), torch.randn(30, 4).double())
    prepared.train()(torch.randn(30, 4).double()).sum().backward()
    assert all(p.dtype == torch.float64 for p in prepared.parameters())


# What it is for.


def spirals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    side, turn = random.integers(0, 2, count), np.sqrt(random.uniform(0.05, 1, count)) * 2.5 * np.pi
    points = np.stack([np.cos(turn + np.pi * side), np.sin(turn + np.pi * side)], axis=1) * turn[:, None] / 6
    return torch.tensor((points + random.normal(0, 0.06, points.shape)).astype(np.float32)), torch.tensor(side)


def fitted(network: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> nn.Module:
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    network.train()
    for _ in range(steps):
        batch = torch.randint(0, len(x), (200,))
        optimiser.zero_grad()
        functional.cross_entropy(network(x[batch]), y[batch]).backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def loss_when_encrypted(prepared: Prepared, x: torch.Tensor, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Share of the test samples that the simulated program gets wrong, over six seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of accuracy, and of values beyond the ranges
        options = {**trained_options(prepared), "task": "classification", "allow_loss": True}
        model = cw.compile(prepared.to_onnx(), x[:500].numpy(), **options)
        found = [model.predict(test[0].numpy(), how="simulate", seed=seed).argmax(axis=1) for seed in range(6)]
    return float((np.array(found) != test[1].numpy()).mean())


@pytest.mark.tier("all")
def test_a_few_epochs_recover_what_the_noise_takes() -> None:
    """A quarter of the errors at least, on a set that is too cheap for the network as it is; as many steps without the noise bring little."""
    (x, y), test = spirals(2000, 1), spirals(2000, 2)
    layers = [layer for width in (2, 20, 20, 20) for layer in (nn.Linear(width, 20), nn.SiLU())]
    module = fitted(nn.Sequential(*layers, nn.Linear(20, 2)), x, y, 500)
    prepared = prepare(module, x[:500], parameter_set="lut1_64")
    before = loss_when_encrypted(prepared, x, test)
    control = fitted(copy.deepcopy(module), x, y, 300)
    without = loss_when_encrypted(prepare(control, x[:500], parameter_set="lut1_64"), x, test)
    fitted(prepared, x, y, 300)
    after = loss_when_encrypted(prepared, x, test)
    assert before > 0.02
    assert after < 0.75 * min(before, without), (before, without, after)


def test_noise_does_not_widen_ranges() -> None:
    """Ranges are those of clear values: what noise adds would come back as more noise."""
    module, x = trained("residual", 200)
    prepared = prepare(module, x, parameter_set="lut1_64").train()
    before = [part.half_range.max() for part in parts(prepared, RowsSeen)]
    with torch.no_grad():
        for _ in range(40):
            prepared(x)
    after = [part.half_range.max() for part in parts(prepared, RowsSeen)]
    assert all(float(b) < 1.2 * float(a) for a, b in zip(before, after, strict=True))
