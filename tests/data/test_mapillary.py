import json

import pytest

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.mapillary import MapillaryVistas
from scaseg.data.datasets.recognition import recognize
from scaseg.data.prepare import prepare
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests

LABELS = [
    {"name": "animal--bird", "readable": "Bird", "evaluate": True, "color": [165, 42, 42]},
    {"name": "void--unlabeled", "readable": "Unlabeled", "evaluate": False, "color": [0, 0, 0]},
    {"name": "nature--sky", "readable": "Sky", "evaluate": True, "color": [70, 130, 180]},
]


def mapillary(root, config="config_v2.0.json", inner="v2.0/labels", labels=LABELS):
    for split, name in (("training", "a"), ("training", "b"), ("validation", "c")):
        replicas.photograph(root / split / "images" / f"{name}.jpg")
        replicas.png(root / split / inner / f"{name}.png", [[0, 1, 2], [2, 2, 0]])
        replicas.png(root / split / "v2.0" / "instances" / f"{name}.png", [[256] * 3] * 2, "uint16")
    replicas.photograph(root / "testing" / "images" / "d.jpg")
    replicas.text(root / config, json.dumps({"labels": labels, "version": 2}))
    return root


class TestMapillaryVistas(PairedDatasetTests):
    dataset, classes = MapillaryVistas, ("Bird", "Sky")
    splits = {"train": ["train/a", "train/b"], "val": ["val/c"]}
    labels = [[0, 255, 1], [1, 1, 0]]

    def replica(self, root):
        return mapillary(root)


@pytest.mark.parametrize(
    ("config", "inner"), [("config_v1.2.json", "v1.2/labels"), ("config.json", "labels")]
)
def test_the_older_versions(tmp_path, config, inner):
    root = mapillary(tmp_path, config, inner)
    [found] = recognize(root)
    assert found[::2] == ("mapillary", f"{config} and {inner}/ of Mapillary Vistas")
    assert MapillaryVistas(root, "val")[0].labels.tolist() == TestMapillaryVistas.labels
    if inner == "labels":  # by its folders alone it could be ours: classes without names
        with pytest.raises(ValueError, match=r"is in another format.* data prepare mapillary "):
            FolderDataset(root)


def test_what_is_left_out_is_said(tmp_path):
    notes = prepare(MapillaryVistas, mapillary(tmp_path / "in"), tmp_path / "ours").notes
    assert notes == ("testing/ has no label maps: not used", "read as unlabelled: Unlabeled")


def test_classes_that_are_read_alike_have_their_long_names(tmp_path):
    root = mapillary(tmp_path, labels=[one | {"readable": "Thing"} for one in LABELS])
    assert MapillaryVistas(root).classes == ("animal--bird", "nature--sky")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([], "names no class, or one twice"),
        ([LABELS[0]] * 2, "names no class, or one twice"),
        ([LABELS[0] | {"color": [1, 2]}], r"labels\[0\]\.color: \[1, 2\]; give r, g, b"),
        (LABELS[:2], r"a\.png: holds 2; config_v2\.0\.json has 0 to 1"),
    ],
)
def test_configs_that_do_not_fit(tmp_path, labels, said):
    root = mapillary(tmp_path, labels=labels)
    with pytest.raises(ValueError, match=said):
        MapillaryVistas(root, "train")[0]


def test_a_folder_without_a_config(tmp_path):
    root = mapillary(tmp_path)
    (root / "config_v2.0.json").unlink()
    with pytest.raises(ValueError, match=r"config_v2\.0\.json: no such file; it names the classes"):
        MapillaryVistas(root)
