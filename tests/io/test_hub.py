"""Models and weights of the Hugging Face hub, without a network: its cache, or nobody there."""

import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch

import scaseg
from scaseg.errors import UserError
from scaseg.io import hub
from scaseg.io.model_folder import BUILTIN

OUTDOOR = BUILTIN / "outdoor"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, and nobody who answers."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("socket.create_connection", unreachable)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def unreachable(*args, **options):
    raise OSError("no route to host")


def put(cache, repository, *files, commit="0" * 40):
    """Files of a repository, as the hub's client lays them out."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for name in files:
        shutil.copy(OUTDOOR / name, snapshot)
    return snapshot


def test_a_model_in_the_cache_is_loaded_without_asking(cache):
    put(cache, "someone/outdoor", "config.json", "model.safetensors")
    found = scaseg.Segmenter.from_pretrained("someone/outdoor")
    assert found.config == scaseg.load_model("outdoor").config
    assert not found.training


def test_a_folder_comes_before_a_repository(cache, tmp_path):
    shutil.copytree(OUTDOOR, tmp_path / "someone" / "outdoor")
    assert scaseg.load_model("someone/outdoor").config.context == "dot"


def test_what_is_not_in_the_cache_is_downloaded(cache, monkeypatch):
    asked = []

    def answer(repository, *, allow_patterns=None, local_files_only=False, **options):
        if local_files_only:
            raise FileNotFoundError
        asked.append((repository, allow_patterns, options))
        return str(OUTDOOR)

    monkeypatch.setattr("huggingface_hub.snapshot_download", answer)
    monkeypatch.setattr(hub, "probe", lambda address: None)
    found = scaseg.load_model("someone/outdoor", revision="v1")
    files = ["config.json", "model.safetensors"]
    assert asked == [("someone/outdoor", files, {"revision": "v1"})]
    assert found.config.classes[0] == "sky"


@pytest.mark.parametrize("name", ["a..b/c", "a--b/c"])
def test_names_that_the_hub_does_not_allow(name, cache):
    with pytest.raises(UserError, match="HFValidationError"):
        scaseg.load_model(name)


def test_half_a_repository_in_the_cache_is_not_enough(cache):
    put(cache, "someone/outdoor", "config.json")
    with pytest.raises(UserError, match=r"^someone/outdoor: not here, and cannot be downloaded"):
        scaseg.load_model("someone/outdoor")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (
            lambda: scaseg.load_model("someone/model"),
            "someone/model: not here, and cannot be downloaded from the Hugging Face hub (OSError)"
            "; check its name, or fetch config.json and model.safetensors elsewhere and give the "
            "path",
        ),
        (
            lambda: scaseg.create_model(
                "mobilenet_v2", "none", "light", classes=2, backbone_weights="imagenet"
            ),
            "backbone_weights: timm/mobilenetv2_100.ra_in1k: not here, and cannot be downloaded "
            "from the Hugging Face hub (OSError); check its name, or fetch model.safetensors "
            "elsewhere and give the path",
        ),
    ],
)
def test_offline_the_hub_is_given_up_at_once(cache, monkeypatch, load, said):
    """Its client, which would try again for half a minute, is asked for what is here alone."""
    ask, local = huggingface_hub.snapshot_download, []

    def asked(*arguments, **options):
        local.append(options.get("local_files_only"))
        return ask(*arguments, **options)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", asked)
    with pytest.raises(UserError) as refused:
        load()
    assert local == [True]
    assert str(refused.value) == said


@pytest.mark.parametrize("name", ["./a/b", "a", "a/b/c", "/a/b", "../a", Path("a/b"), "a/.b", "a/"])
def test_paths_are_not_repositories(name, cache):
    with pytest.raises(UserError, match="no such folder"):
        scaseg.load_model(name)


def test_a_backbone_from_the_cache(cache):
    source = scaseg.create_model("mobilenet_v2", "none", "light", classes=2)
    folder = put(cache, "timm/mobilenetv2_100.ra_in1k")
    from safetensors.torch import save_file

    state = {k: v for k, v in source.backbone.state_dict().items() if "tracked" not in k}
    save_file(state, folder / "model.safetensors")
    model = scaseg.create_model(
        "mobilenet_v2", "none", "light", classes=3, backbone_weights="imagenet"
    )
    for name, tensor in state.items():
        assert torch.equal(model.backbone.state_dict()[name], tensor), name
