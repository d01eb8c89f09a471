"""The LightningModule: losses that are no numbers, odd batches, the schedule."""

import itertools
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from scaseg import create_model
from scaseg.config.run import MachineConfig, TrainingConfig
from scaseg.errors import WorkError
from scaseg.nn.auxiliary import auxiliary_scores
from scaseg.system import matmul_precision
from scaseg.training.checkpoint_io import read_state
from scaseg.training.evaluation import evaluate
from scaseg.training.module import SegmentationModule, poly_factor
from scaseg.training.run import train
from scaseg.training.run_folder import LAST
from scaseg.training.trainer import tf32
from tests.inference.models import refuse_unwaited_copies
from tests.scenes import CLASSES, write_scenes
from tests.training import quick

settings = partial(
    quick.settings, training__epochs=2, training__calibrate="false", data__val="null"
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 16, size=(32, 40))  # 8 to train on


def poison(*names):
    """A user's own transform with a fault: some images come out as NaN."""

    def transform(sample, random):
        if sample.name in names:
            sample.image = np.full(sample.image.shape, np.nan, np.float32)
        return sample

    return [transform]


def steps(monkeypatch):
    """The weights before each training step, and the names in its batch."""
    seen, step = [], SegmentationModule.training_step

    def training_step(self, batch, batch_idx):
        seen.append((batch.names, {n: w.detach().clone() for n, w in self.named_parameters()}))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SegmentationModule, "training_step", training_step)
    return seen


def equal(ours, theirs):
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_run_stops_before_the_step_and_names_the_files(scenes, tmp_path, monkeypatch):
    seen = steps(monkeypatch)
    run = settings(scenes, training__checkpoint_minutes=0)
    with pytest.raises(RuntimeError, match=r"^epoch 1, step \d: the loss is not finite on ") as end:
        train(run, tmp_path / "run", quiet=True, transforms=poison("scene09"))
    names, weights = seen[-1]
    assert "scene09" in names
    assert f"on {', '.join(names)}; nothing was learned from it;" in str(end.value)
    assert "\n" not in str(end.value)
    saved = read_state(tmp_path / "run" / LAST)["state_dict"]
    assert equal(weights, saved)
    finished = train(run, tmp_path / "run", resume=True, quiet=True)  # the fault is mended
    assert torch.isfinite(torch.tensor([row["loss"] for row in finished.rows])).all()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_skipped_batches_teach_nothing(scenes, tmp_path, monkeypatch, accumulate):
    seen = steps(monkeypatch)
    run = settings(scenes, training__on_nan="skip:2", training__accumulate=accumulate)
    said = []
    result = train(run, None, quiet=True, log=said.append, transforms=poison("scene09"))
    told = [line for line in said if "skipped" in line]
    assert len(told) == 2
    assert told[1].endswith("skipped (2 of 2)")
    assert all("scene09" in line for line in told)
    for place, (names, weights) in enumerate(seen[:-1]):
        boundary = place % accumulate == accumulate - 1
        moved = not equal(seen[place + 1][1], weights)
        assert moved == (boundary and not (accumulate == 1 and "scene09" in names))
    assert all(np.isfinite(row["loss"]) for row in result.rows)


def test_a_skipped_step_leaves_no_trace(scenes, monkeypatch):
    """Neither in weights, nor in norms' statistics, nor in what the optimizer remembers."""
    seen, step = [], SegmentationModule.training_step

    def training_step(self, batch, batch_idx):
        remembered = self.optimizers().state_dict()["state"].items()
        tensors = {f"{n}.{k}": value for n, state in remembered for k, value in state.items()}
        tensors |= self.state_dict()
        seen.append((batch.names, {name: one.clone() for name, one in tensors.items()}))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SegmentationModule, "training_step", training_step)
    run = settings(scenes, training__on_nan="skip:2", training__optimizer="AdamW")
    train(run, None, quiet=True, transforms=poison("scene09"))
    for (names, before), (_, after) in itertools.pairwise(seen):
        assert before.keys() == after.keys() or before is seen[0][1]  # which had no moments yet
        assert equal(before, after) == ("scene09" in names)
    assert any(name.endswith("running_mean") for name in after)
    assert any(name.endswith("exp_avg") for name in after)


@pytest.mark.parametrize("augment", ["loader", "device"])
def test_only_a_gpu_is_not_waited_for(scenes, monkeypatch, augment):
    refuse_unwaited_copies(monkeypatch)
    keys = {"training__epochs": 1, "augment__crop": "[24, 24]", "augment__hue": 0.1}
    run = settings(scenes, machine__augment=augment, augment__brightness=0.3, **keys)
    assert np.isfinite(train(run, None, quiet=True).rows[0]["loss"])


def test_one_batch_too_many_ends_it(scenes, tmp_path):
    run = settings(scenes, training__on_nan="skip:1", training__checkpoint_minutes=0)
    with pytest.raises(RuntimeError, match=r"epoch 2, step \d: .*scene09.*; 1 were skipped before"):
        train(run, tmp_path / "run", quiet=True, transforms=poison("scene09"))
    with pytest.raises(RuntimeError, match="1 were skipped before"):  # they count in all
        train(run, tmp_path / "run", resume=True, quiet=True, transforms=poison("scene09"))


def test_weights_that_are_no_numbers_are_not_saved(scenes, tmp_path, monkeypatch):
    """A gradient can be infinite where the loss is not: what was saved before stays."""
    run = settings(scenes, training__checkpoint_minutes=0)
    count = []

    def ruin(self, optimizer):
        count.append(1)
        if len(count) == 3:
            next(self.parameters()).grad.fill_(torch.inf)

    monkeypatch.setattr(SegmentationModule, "on_after_backward", lambda self: ruin(self, None))
    with pytest.raises(RuntimeError, match=r"step 4: .* is not finite any more; lower --lr"):
        train(run, tmp_path / "run", quiet=True)
    state = read_state(tmp_path / "run" / LAST)
    assert state["global_step"] == 2
    assert all(torch.isfinite(tensor).all() for tensor in state["state_dict"].values())


@pytest.mark.parametrize("text", ["skip", "skip:", "skip:-1", "stopp", "skip:x", ""])
def test_what_on_nan_means_is_checked(scenes, text):
    with pytest.raises(ValueError, match=r"training.on_nan: .*; give stop, or skip:10"):
        settings(scenes, training__on_nan=text)


def test_images_without_labels_move_nothing(scenes, tmp_path, monkeypatch):
    """A batch of unlabelled pixels alone: loss 0, gradients 0; without decay, no change at all."""
    seen = steps(monkeypatch)

    def unlabel(sample, random):
        sample.labels[:] = 255
        return sample

    run = settings(scenes, training__weight_decay=0, training__batch_norm="frozen")
    result = train(run, None, quiet=True, transforms=[unlabel])
    assert [row["loss"] for row in result.rows] == [0, 0]
    assert all(equal(weights, seen[0][1]) for _, weights in seen)


@pytest.mark.parametrize("backbone", ["tiny", "mobilenet_v2"])
def test_a_last_batch_of_one_image(scenes, backbone):
    run = settings(scenes, training__batch_size=7, training__epochs=1, model__backbone=backbone)
    result = train(run, None, quiet=True)
    assert result.rows[0]["step"] == 2
    assert np.isfinite(result.rows[0]["loss"])


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 1.0), (1, 0.99**0.9), (50, 0.5**0.9), (99, 0.01**0.9), (100, 0.0), (101, 0.0)],
)
def test_poly_values(step, factor):
    assert poly_factor(step, 100, power=0.9) == pytest.approx(factor)


def test_a_power_of_zero_is_constant():
    assert [poly_factor(step, 10, power=0) for step in range(10)] == [1.0] * 10


def test_the_rate_rises_first():
    rates = [poly_factor(step, 100, power=0, warmup=4) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cudnn_searches_no_algorithms_for_images_of_many_sizes(scenes, monkeypatch):
    """On in training, where crops have one size; off while validating, and in the end."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # and put back at the end
    seen = []
    for name in ("training_step", "validation_step"):
        step = getattr(SegmentationModule, name)

        def remember(self, *arguments, name=name, step=step):
            seen.append((name, torch.backends.cudnn.benchmark))
            return step(self, *arguments)

        monkeypatch.setattr(SegmentationModule, name, remember)
    train(settings(scenes, data__val="auto", augment__crop="[24, 24]"), None, quiet=True)
    assert set(seen) == {("training_step", True), ("validation_step", False)}
    assert not torch.backends.cudnn.benchmark  # who predicts next has images of many sizes


@pytest.mark.parametrize("work", ["training", "evaluating", "fails"])
def test_only_trainings_and_evaluations_compute_in_tf32(scenes, monkeypatch, work):
    """As on a GPU; whoever computes next has torch's precision as it was, also after an error."""
    for module in ("run", "evaluation"):
        tf32 = f"scaseg.training.{module}.tf32"
        monkeypatch.setattr(tf32, lambda device: matmul_precision("high"))
    name = "validation_step" if work == "evaluating" else "training_step"
    seen, step = [], getattr(SegmentationModule, name)

    def remember(self, *arguments):
        seen.append(torch.get_float32_matmul_precision())
        if work == "fails":
            raise RuntimeError("out of memory")
        return step(self, *arguments)

    monkeypatch.setattr(SegmentationModule, name, remember)
    with pytest.raises(WorkError) if work == "fails" else nullcontext():
        if work == "evaluating":
            evaluate(create_model("tiny", "none", "light", classes=CLASSES), scenes, quiet=True)
        else:
            train(settings(scenes), None, quiet=True)
    assert set(seen) == {"high"}
    assert torch.get_float32_matmul_precision() == "highest"


def test_tf32_is_for_gpus():
    for device, precision in (("cuda", "high"), ("cpu", "highest")):
        with tf32(device):
            assert torch.get_float32_matmul_precision() == precision
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_a_gpu_takes_is_saved_and_continued(scenes, tmp_path, monkeypatch):
    """Layout and fused optimizer, here on a CPU, which has both; the same bits after --resume."""
    said, build = [], SegmentationModule.__init__

    def on_gpu(self, *arguments, **options):
        build(self, *arguments, **options)
        said.append(self.use_gpu("bf16", MachineConfig(channels_last=True)))

    monkeypatch.setattr(SegmentationModule, "__init__", on_gpu)
    keys = {"machine__precision": "bf16", "training__gradient_clip": 1}  # Lightning refused these
    run = settings(scenes, training__optimizer="adamw", training__checkpoint_minutes=0, **keys)
    whole = train(run, tmp_path / "whole", quiet=True)
    assert said == ["cuda: bf16, channels_last, fused adamw"]
    assert any(
        weight.is_contiguous(memory_format=torch.channels_last) and weight.shape[2] > 1
        for weight in whole.model.parameters()
        if weight.dim() == 4
    )

    step, count = SegmentationModule.training_step, []

    def end(self, batch, batch_idx):
        count.append(1)
        if len(count) == 6:
            raise RuntimeError("the machine goes away")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SegmentationModule, "training_step", end)
    with pytest.raises(RuntimeError, match="goes away"):
        train(run, tmp_path / "parts", quiet=True)
    monkeypatch.setattr(SegmentationModule, "training_step", step)
    parts = train(run, tmp_path / "parts", resume=True, quiet=True)
    assert equal(whole.model.state_dict(), parts.model.state_dict())


@pytest.mark.parametrize(
    ("optimizer", "options", "fused"),
    [("SGD", {}, True), ("adamw", {"fused": False}, False), ("Rprop", {}, False)],
)
def test_which_optimizers_are_fused(optimizer, options, fused):
    config = TrainingConfig(optimizer=optimizer, optimizer_options=options)
    module = SegmentationModule(create_model("tiny", "none", "pointwise", classes=2), config)
    said = module.use_gpu("32", MachineConfig())
    assert said == f"cuda: float32, channels_last{f', fused {optimizer}' if fused else ''}"
    ((found,), _) = module.configure_optimizers()
    assert bool(found.defaults.get("fused")) == fused
    assert "fused" not in module.use_gpu("16", MachineConfig(channels_last=False))


def test_an_auxiliary_classifier_has_a_loss_of_its_own():
    """0.4 of it is added; in a padded batch its scores are resized image by image too."""
    model = create_model("tiny", "object", "pointwise", classes=3).double().eval()
    module = SegmentationModule(model, TrainingConfig())
    sizes = torch.tensor([[40, 48], [33, 41]])
    images = torch.full((2, 3, 40, 48), torch.nan, dtype=torch.float64)
    labels = torch.full((2, 40, 48), 255)
    parts = []
    for index, (height, width) in enumerate(sizes.tolist()):
        image = torch.randn(1, 3, height, width, dtype=torch.float64)
        images[index, :, :height, :width] = image[0]
        labels[index, :height, :width] = torch.randint(3, (height, width))
        with torch.no_grad(), auxiliary_scores(model) as others:
            own = model(image)
        [(share, scores)] = others
        for weight, one in (
            (1, own),
            (share, F.interpolate(scores, (height, width), mode="bilinear")),
        ):
            truth = labels[index : index + 1, :height, :width]
            parts.append(weight * F.cross_entropy(one.float(), truth, reduction="sum"))
    found = module._training_loss(images, labels, sizes)
    torch.testing.assert_close(found, sum(parts) / (labels != 255).sum())
    found.backward()
    assert (model.context.classifier.bias.grad != 0).all()


@pytest.mark.parametrize("layer_decay", [None, 0.5])
def test_what_coefficients_follow_from_can_learn_at_a_rate_of_its_own(layer_decay):
    model = create_model("tiny", "sca", "light", classes=["a", "b"], hidden=8)
    config = TrainingConfig(lr=0.1, head_lr=1.0, score_lr_factor=0.25, layer_decay=layer_decay)
    [optimizer], _ = SegmentationModule(model, config).configure_optimizers()
    rates = {id(one): g["initial_lr"] for g in optimizer.param_groups for one in g["params"]}
    assert len(rates) == len(list(model.parameters()))
    for name, weight in model.named_parameters():
        if name.startswith("context.predictor."):
            assert rates[id(weight)] == 0.25
        elif not name.startswith("backbone."):
            assert rates[id(weight)] == 1
        else:
            assert rates[id(weight)] <= 0.1
