"""A model of other bands than red, green and blue, from training to prediction."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.cli import main
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.validation.check import check_data
from scaseg.errors import UserError
from scaseg.training.callbacks import LastCheckpoint
from scaseg.training.evaluation import evaluate
from tests.training import quick


def write_bands(root, count=8, bands=5, dtype=np.uint16, seed=0):
    """The class is in the last band, which no photograph has."""
    random = np.random.default_rng(seed)
    for part in ("images", "labels"):
        (root / part).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        labels = np.zeros((32, 40), np.uint8)
        labels[:, : random.integers(8, 32)] = 1
        pixels = random.normal(1000, 50, (32, 40, bands))
        pixels[..., -1] = 3000 + 500.0 * labels + random.normal(0, 30, labels.shape)
        np.save(root / "images" / f"a{index}.npy", pixels.astype(dtype))
        Image.fromarray(labels).save(root / "labels" / f"a{index}.png")
    (root / "classes.txt").write_text("low\nhigh")
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bands")
    data = write_bands(folder / "data")
    run = quick.settings(
        data, data__bands=5, training__epochs=30, training__lr=0.005, training__optimizer="Adam",
        data__hold_out=0.25, augment__scale="[0.8, 1.2]", training__class_weights="none",
    )  # fmt: skip
    return data, scaseg.train(run, folder / "run", quiet=True)


def test_mean_and_std_are_measured_and_kept(trained):
    data, result = trained
    config = scaseg.load_model(result.folder).config
    assert (config.in_channels, config.dtype, config.bands) == (5, "uint16", 5)
    names = [data / "images" / f"a{index}.npy" for index in range(8)]
    held = set(range(8)) - {2, 6}  # a quarter is held out, evenly spread
    pixels = np.concatenate([np.load(names[index]).reshape(-1, 5) for index in sorted(held)])
    np.testing.assert_allclose(config.mean, pixels.mean(0), rtol=1e-4)
    np.testing.assert_allclose(config.std, pixels.std(0), rtol=1e-3)


def test_what_the_last_band_shows_is_learned(trained):
    data, result = trained
    assert evaluate(result.folder, data, split="all", quiet=True).scores.mean_iou > 0.8
    pixels = np.load(data / "images" / "a0.npy")
    found = scaseg.load_model(result.folder).predict([data / "images" / "a0.npy", pixels])
    assert (found[0].labels == found[1].labels).all()
    assert found[0].image.shape == (32, 40, 3)
    found[0].overlay()


def test_commands_read_the_same_kind_of_file(trained, tmp_path):
    data, result = trained
    out, model = str(tmp_path / "out"), ("--model", str(result.folder), "--quiet")
    main(["predict", str(data / "images"), *model, "--out", out, "--overlay"])
    assert len(list((tmp_path / "out").glob("*.overlay.jpg"))) == 8
    figure, image = str(tmp_path / "a.png"), str(data / "images" / "a0.npy")
    main(["explain", image, *model, "--point", "3,4", "--out", figure])
    main(["data", "check", str(data), "--data.bands", "5"])


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_a_photograph_is_refused(trained, tmp_path, capsys, command):
    Image.fromarray(np.zeros((32, 40, 3), np.uint8)).save(tmp_path / "a.png")
    arguments = [command, str(tmp_path / "a.png"), "--model", str(trained[1].folder)]
    arguments += ["--out", str(tmp_path / "out.png")]
    with pytest.raises(SystemExit, match="2"):
        main(arguments + (["--point", "1,1"] if command == "explain" else []))
    message = capsys.readouterr().err
    assert "a.png: has 3 bands of uint8; give an image with 5 bands of uint16" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out.png").exists()


def test_data_of_other_bands_or_another_type_are_refused(trained, tmp_path):
    model = trained[1].model
    for dtype, bands, message in ((np.float32, 5, "has 5 bands of float32"), (np.uint16, 4, "4")):
        other = write_bands(tmp_path / f"{bands}", count=2, bands=bands, dtype=dtype)
        with pytest.raises(UserError, match=f"a0.npy: has {bands} bands of .*{message}|{message}"):
            evaluate(model, other, split="all", quiet=True)
    with pytest.raises(UserError, match="4 bands of uint16; the model takes 5 of uint16"):
        evaluate(model, other, split="all", overrides={"data.bands": "4"}, quiet=True)
    with pytest.raises(UserError, match=r"shape \(32, 40, 5\) and dtype uint8; give .*, uint16"):
        model.predict(np.zeros((32, 40, 5), np.uint8))


def test_photographs_do_not_go_on_from_a_model_of_bands(trained, tmp_path):
    data = write_bands(tmp_path)
    for path in (data / "images").iterdir():
        Image.fromarray(np.zeros((32, 40, 3), np.uint8)).save(path.with_suffix(".png"))
        path.unlink()
    keys = {"data.root": str(data), "machine.device": "cpu"}
    said = "0.png: has 3 bands of uint8; the model of --start-from reads 5 bands of uint16"
    with pytest.raises(UserError, match=said):
        scaseg.train(start_from=trained[1].folder, overrides=keys, quiet=True)


def test_arrays_with_bands_first_are_named(tmp_path):
    data = write_bands(tmp_path)
    for path in (data / "images").iterdir():
        np.save(path, np.load(path).transpose(2, 0, 1))
    said = (
        r"a0.npy: an array of shape \(5, 32, 40\): its bands come first; transpose it to \(height"
    )
    with pytest.raises(UserError, match=said):
        scaseg.train(quick.settings(data, data__bands=5), None, quiet=True)


def test_one_type_for_all_files(tmp_path):
    data = write_bands(tmp_path)
    np.save(data / "images" / "a3.npy", np.load(data / "images" / "a3.npy").astype(np.float32))
    said = "a3.npy: has 5 bands of float32; give an image with 5 bands of uint16"
    with pytest.raises(UserError, match=said):
        scaseg.train(quick.settings(data, data__bands=5), None, quiet=True)
    [error] = check_data(FolderDataset, data, bands=5).errors  # no less than training says
    assert str(error).endswith(said)
    with pytest.raises(UserError, match=r"it is an array of NumPy.*; give data.bands"):
        scaseg.train(quick.settings(data), None, quiet=True)


def test_given_statistics_are_taken_and_one_band_will_do(tmp_path):
    data = write_bands(tmp_path / "data", count=4, bands=1)
    run = quick.settings(
        data, data__bands=1, data__mean="[3200]", data__std="[250]", training__epochs=1
    )
    result = scaseg.train(run, tmp_path / "run", quiet=True)
    assert (result.model.config.mean, result.model.config.std) == ((3200.0,), (250.0,))
    with pytest.raises(UserError, match=r"data.mean: 1 numbers for 2 bands; give one for each"):
        replace(run.data, bands=2)
    colored = replace(run, augment=replace(run.augment, saturation=0.2, hue=0.2))
    trained = scaseg.train(colored, None, quiet=True)  # a recipe may have them for photographs
    assert trained.rows[0]["loss"] == result.rows[0]["loss"]


def test_a_model_that_is_trained_further_keeps_its_mean_and_std(trained, tmp_path):
    _, result = trained
    brighter = write_bands(tmp_path / "data", count=4, seed=1)
    for path in (brighter / "images").iterdir():
        np.save(path, np.load(path) + 500)
    more = {"training.epochs": "1", "machine.device": "cpu", "machine.workers": "0"}
    more |= {"augment.fit": "null", "augment.crop": "[32, 32]", "data.root": str(brighter)}
    further = scaseg.train(
        "own_folder", None, start_from=result.folder, overrides=more, quiet=True
    ).model.config
    assert (further.mean, further.std) == (result.model.config.mean, result.model.config.std)
    assert further.bands == 5


def test_a_resumed_run_measures_nothing_again(tmp_path, monkeypatch):
    data = write_bands(tmp_path / "data", count=4)
    run = quick.settings(data, data__bands=5, training__epochs=2)
    whole = scaseg.train(run, tmp_path / "whole", quiet=True)
    ended = LastCheckpoint.on_train_epoch_end

    def end(self, trainer, module):
        ended(self, trainer, module)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_train_epoch_end", end)
        with pytest.raises(KeyboardInterrupt):
            scaseg.train(run, tmp_path / "cut", quiet=True)
    monkeypatch.setattr("scaseg.training.data.band_statistics", None)
    resumed = scaseg.train(None, tmp_path / "cut", resume=True, quiet=True)
    assert resumed.model.config.mean == whole.model.config.mean
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, whole.model.state_dict()[name]), name
