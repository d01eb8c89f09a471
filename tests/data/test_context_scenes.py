"""Generated scenes: the same everywhere, and true to the rule that makes them worth learning."""

import numpy as np
import pytest
import torch

from scaseg.cli import main
from scaseg.config.run import DataConfig
from scaseg.data.datasets import context_scenes
from scaseg.data.datasets.context_scenes import ContextScenesGlobal, ContextScenesSelective
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.loading import DiskCache, RamCache
from scaseg.data.scenes import legend, mirage
from scaseg.data.scenes.canvas import Canvas
from scaseg.data.splits import build_dataset
from scaseg.data.validation.check import count_pixels
from scaseg.models.backbones.tiny import Tiny
from scaseg.registry import DATASETS, GENERATED_DATASETS

# the first test scene of each: pixels of the classes, and the mean brightness
EVERYBODYS = {
    "context_scenes_global": ([2638, 1330, 162, 218, 176, 249, 0, 7515, 0, 0], 194.1),
    "context_scenes_selective": ([3054, 324, 648, 972, 0, 1315, 2205, 3770, 0], 184.3),
}
GENERATED = {name: DATASETS[name] for name in sorted(GENERATED_DATASETS)}
FLAVOURS = pytest.mark.parametrize("flavour", GENERATED.values())


@FLAVOURS
def test_a_scene_is_a_function_of_its_split_and_number(flavour):
    once, again = flavour("train")[3], flavour(None)[3]  # alone, or among all
    assert once.name == again.name == "train-0003"
    assert np.array_equal(once.image, again.image)
    assert np.array_equal(once.labels, again.labels)
    assert not np.array_equal(once.image, flavour("train")[4].image)
    assert not np.array_equal(once.image, flavour("test")[3].image)


@FLAVOURS
def test_shapes_classes_and_names(flavour):
    scenes = flavour("val")
    assert [len(flavour(split)) for split in flavour.splits()] == [2000, 200, 400]
    seen = np.zeros(len(flavour.classes), dtype=bool)
    for index in range(60):
        sample = scenes[index]
        assert sample.image.shape == (96, 128, 3)
        assert sample.image.dtype == np.uint8
        assert sample.labels.shape == (96, 128)
        seen[np.unique(sample.labels)] = True  # an index outside would raise
    assert seen.all()
    assert len(flavour.palette) == len(flavour.classes)
    assert len(set(scenes.names)) == len(scenes)
    part = scenes.subset([5, 1])
    assert part.names == [scenes.names[5], scenes.names[1]]
    assert np.array_equal(part[0].image, scenes[5].image)


def stamps(monkeypatch, draw, seed):
    """Draw a scene and note what was stamped on it, and what was painted."""
    noted, painted = [], []
    stamp, paint = Canvas.stamp, Canvas.paint

    def note(self, x, y, size, pen, *, opacity=1.0, label):
        noted.append((opacity, label, getattr(pen, "keywords", {})))
        stamp(self, x, y, size, pen, opacity=opacity, label=label)

    def keep(self, x, y, colors, labels):
        painted.append((colors, labels))
        paint(self, x, y, colors, labels)

    monkeypatch.setattr(Canvas, "stamp", note)
    monkeypatch.setattr(Canvas, "paint", keep)
    return draw(np.random.default_rng(seed), 96, 128), noted, painted


@pytest.mark.parametrize("seed", range(8))
def test_the_clearest_thing_says_what_the_sand_is(monkeypatch, seed):
    scene, noted, _ = stamps(monkeypatch, mirage.draw, seed)
    ground = set(np.unique(scene.labels)) & set(range(mirage.FIRST_GROUND, len(mirage.CLASSES)))
    assert len(ground) == 1
    (clear, real, _), *mirages = sorted(noted, reverse=True)
    assert real - mirage.FIRST_THING == ground.pop() - mirage.FIRST_GROUND
    assert len(mirages) >= 4
    assert mirages[0][0] <= 0.8 * clear  # no doubt which one it is
    assert mirages[0][0] >= 0.35 * clear  # and others that are worth a look


@pytest.mark.parametrize("seed", range(8))
def test_every_field_has_one_sign_that_tells_its_crop(monkeypatch, seed):
    _, noted, painted = stamps(monkeypatch, legend.draw, seed)
    signs = {note["tag"]: note["crop"] for _, _, note in noted}
    assert len(signs) == len(noted)  # no tag has two signs
    assert all(label == legend.FIRST_SIGN + note["crop"] for _, label, note in noted)
    ((colors, labels),) = painted
    told = {(legend.GROUNDS[tag // 6], crop) for tag, crop in signs.items()}
    told |= {(legend.DOTS[tag % 6], crop) for tag, crop in signs.items()}
    told |= {(legend.INK, crop) for crop in range(4)}
    drawn = np.concatenate([colors, labels[..., None]], 2).reshape(-1, 4)
    for red, green, blue, label in np.unique(drawn, axis=0).tolist():
        assert ((red, green, blue), label - legend.FIRST_CROP) in told


def test_a_summary_cannot_hold_the_legend():
    """The documents' count: more facts than the context has channels."""
    assert legend.TAGS * len(legend.CROPS) == 144
    assert Tiny.out_channels == 64


def test_a_neuron_sees_23_pixels_and_no_more():
    images = torch.randn(1, 3, 96, 128, requires_grad=True)
    Tiny().eval()(images)[0][0, :, 6, 8].sum().backward()
    rows, columns = images.grad[0].abs().sum(0).nonzero().T
    assert (rows.min(), rows.max()) == (48 - 11, 48 + 11)
    assert (columns.min(), columns.max()) == (64 - 11, 64 + 11)


def test_caches_and_scan_take_scenes(tmp_path):
    scenes = ContextScenesSelective("val").subset(range(3))
    for cache in (RamCache(scenes), DiskCache(scenes, tmp_path), DiskCache(scenes, tmp_path)):
        assert np.array_equal(cache[2].image, scenes[2].image)
        assert np.array_equal(cache[2].labels, scenes[2].labels)
        assert cache[2].name == "val-0002"
    counted = np.bincount(
        np.concatenate([scenes[index].labels.ravel() for index in range(3)]),
        minlength=len(scenes.classes),
    )
    assert count_pixels(scenes) == tuple(counted.tolist())


def test_settings_of_files_do_not_fit():
    assert len(build_dataset(DataConfig(name="context_scenes_global"), "val")) == 200
    with pytest.raises(ValueError, match="--data: 'photos', but context_scenes_global is gener"):
        build_dataset(DataConfig(name="context_scenes_global", root="photos"), "train")
    with pytest.raises(ValueError, match="reduce_zero_label: True, but context_scenes_selective"):
        build_dataset(DataConfig(name="context_scenes_selective", reduce_zero_label=True), None)
    with pytest.raises(ValueError, match="split: 'tset'; did you mean test"):
        ContextScenesGlobal("tset")


def test_prepare_writes_scenes_as_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(context_scenes, "SPLITS", {"train": 3, "val": 1, "test": 2})
    place = tmp_path / "scenes"
    for said in ("6 pairs written, 0 were there", "0 pairs written, 6 were there"):
        main(["data", "prepare", "context_scenes_global", str(place)])
        assert said in capsys.readouterr().out
    there, scenes = FolderDataset(place, "test"), ContextScenesGlobal("test")
    assert there.classes == scenes.classes
    for one, other in zip(there, scenes, strict=True):
        assert one.name == other.name
        assert np.array_equal(one.image, other.image)
        assert np.array_equal(one.labels, other.labels)


def test_prepare_wants_a_source_for_files_only(tmp_path, capsys):
    for words, said in (
        (
            ["context_scenes_global", "photos", "out"],
            "FOLDER: photos out; give DST alone, context_",
        ),
        (["sift_flow", "--quiet", "a", "b", "out"], "FOLDER: a b out; give SRC and DST"),
        (["sift_flow", "out"], "FOLDER: out; give SRC and DST"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["data", "prepare", *words])
        assert stop.value.code == 2
        assert said in capsys.readouterr().err


def test_the_scenes_are_those_of_everybody_else():
    """With the pinned versions, to the pixel; a change of the drawing wants another VERSION."""
    found = {}
    for name, flavour in GENERATED.items():
        sample = flavour("test")[0]
        found[name] = (
            np.bincount(sample.labels.ravel(), minlength=len(flavour.classes)).tolist(),
            round(float(sample.image.mean()), 1),
        )
    assert context_scenes.VERSION == 1
    assert found == EVERYBODYS
