import json

import pytest
import torch

import scaseg
from scaseg.cli import doctor, main


def installed(monkeypatch, requires, versions, extras=("export", "dev")):
    """Pretend that pip installed scaseg with these requirements."""

    class Metadata:
        def get_all(self, name):
            return list(extras)

    def version(name):
        if name not in versions:
            raise doctor.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor.metadata, "requires", lambda name: requires)
    monkeypatch.setattr(doctor.metadata, "metadata", lambda name: Metadata())
    monkeypatch.setattr(doctor.metadata, "version", version)


def test_what_it_says(monkeypatch, capsys):
    requires = ["torch>=2.11", 'onnx; extra == "export"', 'onnxscript; extra == "export"']
    installed(monkeypatch, requires, {"torch": "2.13.0+cpu", "onnx": "1.23.2"})
    main(["doctor"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith(f"scaseg {scaseg.__version__}, Python 3.")
    assert "torch 2.13.0+cpu" in lines
    assert any(line.startswith("cpu: ") for line in lines)
    assert "export: without onnxscript: pip install 'scaseg[export]'" in lines
    assert not any(line.startswith("dev:") for line in lines)
    assert lines[-2:] == ["problems", "none"]


def test_what_is_too_old_or_missing_is_a_problem(monkeypatch, capsys):
    requires = ["torch>=2.11", "numpy>=2", "rich"]
    installed(monkeypatch, requires, {"torch": "2.4.0", "numpy": "2.4.6"}, extras=())
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", "--json"])
    assert stopped.value.code == 1
    said = capsys.readouterr()
    assert said.err == "error: doctor: problems: 2; see above\n"
    assert json.loads(said.out)["problems"] == [
        "torch is 2.4.0, >=2.11 fits; pip install --upgrade scaseg",
        "rich is missing, any fits; pip install --upgrade scaseg",
    ]


def test_a_torchvision_of_another_torch(monkeypatch):
    def broken(name):
        if name == "pytorch_lightning":
            raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(doctor, "import_module", broken)
    (problem,) = doctor._problems({})
    assert problem.startswith("pytorch_lightning cannot be imported (operator torchvision::nms")
    assert problem.endswith("pip uninstall torchvision: it is for another build of torch")


def test_devices(monkeypatch):
    card = torch.nn.Module()
    card.name, card.total_memory = "A card", 2**34
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    assert doctor._devices()["cuda:0"].startswith("A card, 16 GiB")


def test_not_installed_by_pip(monkeypatch, capsys):
    def missing(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", missing)
    main(["doctor"])
    assert "not known: scaseg was not installed by pip" in capsys.readouterr().out
