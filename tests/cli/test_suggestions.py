"""What is misspelt is answered in one line, with the nearest that exists."""

import pytest

from scaseg.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # commands
        ("frob", "unknown command 'frob'; the commands are demo, train,"),
        ("trian", "unknown command 'trian'; did you mean train?"),
        ("data chek", "unknown command 'chek'; did you mean check?"),
        ("check photos", "unknown command 'check'; did you mean data check?"),
        ("data frob", "unknown command 'frob'; the commands are list, check, prepare, look, fix"),
        ("", "the following arguments are required: COMMAND; see scaseg --help"),
        # options, before anything that is missing
        ("train --epohcs 3", "--epohcs: unknown option; did you mean --epochs?"),
        ("train --epohcs=3", "--epohcs: unknown option; did you mean --epochs?"),
        ("train --epoch 3", "--epoch: unknown option; did you mean --epochs?"),  # no abbreviation
        ("train --epoc=3", "--epoc: unknown option; did you mean --epochs?"),
        ("train --batch_size 3", "--batch_size: unknown option; did you mean --batch-size?"),
        ("compare --outt x", "--outt: unknown option; did you mean --out?"),
        ("data check --qiet", "--qiet: unknown option; did you mean --quiet?"),
        (
            "train --model outdoor",
            "--model: unknown option; a model is trained further by --start-from MODEL",
        ),
        (
            "compare --model=outdoor",
            "--model: unknown option; a training starts from a model's backbone by "
            "--backbone-weights outdoor",
        ),
        ("bench --zzz", "--zzz: unknown option; see scaseg bench --help"),
        ("--verson", "--verson: unknown option; did you mean --version?"),
        (
            "--epochs 3 train",
            "--epochs: unknown option; options follow the command: see scaseg --help",
        ),
        ("train -o runs", "'-o': not expected here; see scaseg train --help"),
        ("bench 64", "'64': not expected here; see scaseg bench --help"),
        # keys of a recipe
        (
            "train --training.epohcs 3",
            "--training.epohcs: unknown key; did you mean --training.epochs?",
        ),
        (
            "train --trainning.epochs 3",
            "--trainning.epochs: unknown key; did you mean --training.epochs?",
        ),
        (
            "evaluate --model x --data.labels_map 3",
            "--data.labels_map: unknown key; did you mean --data.label_map?",
        ),
        ("train --data.epochs 3", "--data.epochs: unknown key; did you mean --training.epochs?"),
        ("train --zz.qq=3", "--zz.qq: unknown key; scaseg train --keys lists all"),
        ("train --ema 0.9", "--ema: unknown option; did you mean --training.ema?"),
        (
            "bench --training.ema 1",
            "--training.ema: this command has no such option; see scaseg --help",
        ),
        # values
        ("evaluate --model x --overlap some", "--overlap: 'some'; give a whole number"),
        ("train --out", "--out: expected one argument; see scaseg train --help"),
        # choices
        (
            "train --device gpu",
            "--device: 'gpu'; did you mean cuda? give one of auto, cpu, cuda, mps",
        ),
        ("train --device tpu", "--device: 'tpu'; did you mean cpu? give one of auto, cpu,"),
        ("train --device abacus", "--device: 'abacus'; give one of auto, cpu, cuda, mps"),
        ("train --precision fp16", "--precision: 'fp16'; did you mean 16? give one of 32, bf16,"),
        (
            "train --data x --out y --context scaa",
            "--context: 'scaa'; did you mean sca? give one of none, average, sca, dot,",
        ),
        (
            "compare --data x --out y --contexts none,scaa",
            "--contexts: 'scaa'; did you mean sca? give one of none, average, sca, dot,",
        ),
        (
            "data check . --name sift_flw",
            "--name: 'sift_flw'; did you mean sift_flow? give one of folder, sift_flow,",
        ),
    ],
)
def test_the_nearest_is_suggested(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {message}")
    assert printed.err.count("\n") == 1
    if not message.endswith(","):
        assert printed.err == f"error: {message}\n"
    assert stop.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_keys_below_a_mapping_are_free(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["train", "--out", "y", "--model.context_options.key_channels", "4"])
    assert capsys.readouterr().err == (
        "error: --data: nothing; say where the photographs and labels are\n"
    )


def test_after_two_hyphens_nothing_is_an_option(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["train", "--out", "y", "--", "--epohcs"])
    assert "--epohcs: no such file; give a recipe" in capsys.readouterr().err
