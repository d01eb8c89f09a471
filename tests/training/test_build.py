import inspect

import pytest
import torch

from scaseg.config.run import TrainingConfig
from scaseg.losses import LOSSES
from scaseg.training.build import (
    LOGGERS,
    OPTIMIZERS,
    UNFIT,
    build_loggers,
    build_loss,
    build_optimizer,
)

SCORES = torch.linspace(-3, 3, 96).sin().view(2, 3, 4, 4)
LABELS = torch.arange(32).view(2, 4, 4) % 3


def groups(rate=0.5):
    weights = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 2))]
    return [{"params": weights[:1], "lr": rate}, {"params": weights[1:]}]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_by_name(name):
    loss = build_loss(TrainingConfig(loss=name))
    weights = torch.tensor([1.0, 2.0, 0.5])
    assert torch.equal(loss(SCORES, LABELS, weights), LOSSES[name](SCORES, LABELS, weights))


@pytest.mark.parametrize(
    ("name", "options"),
    [("focal", {"gamma": 5}), ("dice", {"cross_entropy_share": 0}), ("ohem", {"threshold": 0.1})],
)
def test_options_reach_the_loss(name, options):
    found = build_loss(TrainingConfig(loss=name, loss_options=options))(SCORES, LABELS, None)
    assert torch.equal(found, LOSSES[name](SCORES, LABELS, None, **options))
    assert found != LOSSES[name](SCORES, LABELS, None)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("cross_entropy", {"gamma": 1}, "loss_options.gamma: unknown key; cross_entropy has no op"),
        ("ohem", {"gamma": 1}, "loss_options.gamma: unknown key; ohem has threshold, keep"),
        ("focal", {"weights": 1}, "loss_options.weights: unknown key; focal has gamma"),
        ("focal", {"gamma": -1}, "loss_options.gamma: -1; give a number >= 0"),
        ("focal", {"gamma": "2"}, "loss_options.gamma: '2'; give a number >= 0"),
        ("focal", {"gamma": True}, "loss_options.gamma: True; give a number >= 0"),
        ("focal", {"gamma": None}, "loss_options.gamma: None; give a number >= 0"),
        ("focal", {"gamma": float("nan")}, "loss_options.gamma: nan; give a number >= 0"),
        ("focal", {"gamma": float("inf")}, "loss_options.gamma: inf; give a number >= 0"),
        ("ohem", {"keep": 1.5}, "loss_options.keep: 1.5; give a number from 0 to 1"),
        ("dice", {"cross_entropy_share": 2}, "cross_entropy_share: 2; give a number from 0 to 1"),
        ("hinge", {}, "loss: 'hinge'; give one of cross_entropy, focal, dice, ohem, lovasz"),
    ],
)
def test_what_a_loss_does_not_take_is_refused(name, options, said):
    with pytest.raises(ValueError, match=rf"^training\..*{said}"):
        build_loss(TrainingConfig(loss=name, loss_options=options))


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimiser_by_name_in_any_case(name, change):
    config = TrainingConfig(optimizer=change(name), lr=0.01, momentum=0.7, weight_decay=0.02)
    optimizer = build_optimizer(config, groups())
    assert type(optimizer) is getattr(torch.optim, name)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.01]
    known = inspect.signature(type(optimizer)).parameters
    for key, value in (("momentum", 0.7), ("weight_decay", 0.02)):
        for group in optimizer.param_groups:
            assert group.get(key) == (value if key in known else None)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimiser_steps(name):
    own = groups(0.02)
    optimizer = build_optimizer(TrainingConfig(optimizer=name, lr=0.01), own)
    weights = [weight for group in own for weight in group["params"]]
    for _ in range(2):
        optimizer.zero_grad()
        sum((weight**2).sum() for weight in weights).backward()
        optimizer.step()
    assert all(weight.abs().max() < 1 for weight in weights)


def test_options_reach_the_optimiser_and_come_before_the_usual():
    config = TrainingConfig(optimizer_options={"nesterov": True, "momentum": 0.5})
    group = build_optimizer(config, groups()).param_groups[0]
    assert (group["nesterov"], group["momentum"]) == (True, 0.5)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("adamm", {}, r"optimizer: 'adamm'; did you mean Adam\? give one of .*Adam, .*SGD"),
        ("LBFGS", {}, "optimizer: 'LBFGS'; give one of"),
        ("optimizer", {}, "optimizer: 'optimizer'; give one of"),
        ("sgd", {"betas": 1}, "optimizer_options.betas: unknown key; SGD has momentum"),
        ("sgd", {"lr": 1}, "optimizer_options.lr: unknown key; SGD has"),
        ("sgd", {"params": 1}, "optimizer_options.params: unknown key"),
        ("adam", {"eps": "small"}, r"optimizer_options: .*; see torch.optim.Adam"),
        ("adam", {"betas": [2, 2]}, r"optimizer_options: .*; see torch.optim.Adam"),
        ("adam", {"betas": 3}, r"optimizer_options: .*; see torch.optim.Adam"),
        ("adam", {"fused": True, "foreach": True}, r"optimizer_options: .*; see torch.optim.Adam"),
    ],
)
def test_what_an_optimiser_does_not_take_is_refused(name, options, said):
    with pytest.raises(ValueError, match=rf"^training\.{said}"):
        build_optimizer(TrainingConfig(optimizer=name, optimizer_options=options), groups())


def test_what_is_left_out_exists():
    """A name that torch has dropped would leave nothing out."""
    assert all(hasattr(torch.optim, name) for name in UNFIT)


def test_loggers_by_name(tmp_path):
    from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

    names = ("tensorboard", "csv", "CSVLogger")
    board, table, by_class = build_loggers(names, tmp_path / "run")
    assert isinstance(board, TensorBoardLogger)
    assert isinstance(table, CSVLogger)
    assert isinstance(by_class, CSVLogger)
    assert build_loggers((), tmp_path) == []
    board.log_metrics({"mIoU": 1.0}, step=1)
    table.log_metrics({"mIoU": 1.0}, step=1)
    for logger in (board, table):
        logger.save()
        logger.finalize("success")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert (tmp_path / "run" / "csv" / "metrics.csv").is_file()


def test_every_nickname_is_a_logger_of_lightnings():
    from pytorch_lightning import loggers

    assert all(issubclass(getattr(loggers, name), loggers.Logger) for name in LOGGERS.values())


@pytest.mark.parametrize("name", ["paper", "Logger", "annotations", ""])
def test_unknown_loggers_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"training.loggers: '{name}'; give some of tensorboard"):
        build_loggers((name,), tmp_path)


@pytest.mark.parametrize(
    ("name", "more"),
    [("tensorboard", r"pip install 'scaseg\[log\]'"), ("wandb", "install its package")],
)
def test_loggers_that_are_not_installed_say_so(tmp_path, monkeypatch, name, more):
    from pytorch_lightning import loggers

    class Missing(loggers.CSVLogger):
        def __init__(self, save_dir, name):
            raise ModuleNotFoundError("no such package")

    monkeypatch.setattr(loggers, LOGGERS[name], Missing)
    with pytest.raises(ValueError, match=f"training.loggers: {name} is not installed; {more}"):
        build_loggers((name,), tmp_path)
