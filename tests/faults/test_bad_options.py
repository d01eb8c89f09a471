"""Options and places that cannot be: refused before anything is read, made or written."""

import os
import shutil

import torch

from tests.faults.catalogue import LIGHT, TRAIN, cases, refuse

PREDICT = ("predict", "photo.png", "--model", "model", "--device", "cpu", "--out", "out")
EXPLAIN = ("explain", "photo.png", "--model", "model", "--device", "cpu", "--out", "why.png")
EVALUATE = ("evaluate", "--model", "model", "--data", "data", "--device", "cpu", "--workers", "0")
COMPARE = ("compare", "--data", "data", "--out", "out", *LIGHT)
LONG = "a" * 300
DIGITS = "9" * 5000


def train_into(out):
    return ("train", "--data", "data", "--out", out, *LIGHT, "--context", "sca")


def folder(name):
    return lambda: os.mkdir(name)


def prepared(said, name, source, *options):
    """`data prepare` of something that is not in the format, or with a bad option."""
    arguments = ("data", "prepare", name, source, "out", *options)
    return (f"prepare: {name} {said[:30]}", arguments, said)


BAD = cases(
    ("no command", (), "the following arguments are required: COMMAND"),
    ("unknown command", ("trian",), "unknown command 'trian'; did you mean train?"),
    ("unknown option", ("train", "--dta", "data"), "--dta: unknown option; did you mean --data?"),
    ("no command of data", ("data",), "required: COMMAND; see scaseg data --help"),
    ("key before an option", ("train", "--training.ema", "--out", "o"), "'--out' follows; give a"),
    ("key without value", ("train", "--training.ema"), "--training.ema: no value; give one"),
    ("too many words", ("bench", "5"), "'5': not expected here"),
    ("train: no out", ("train", "--data", "data"), "--out: nothing; give the folder of the run"),
    ("train: no data", ("train", "--out", "out"), "--data: nothing; say where"),
    ("train: empty data", ("train", "--data", "", "--out", "out"), "--data: ''; give something"),
    ("train: data a file", ("train", "--data", "photo.png", "--out", "out"), "no such folder"),
    ("train: batch size", (*TRAIN, "--batch-size", "-1"), "--batch-size: '-1'; give a whole"),
    ("train: batch of 1e400", (*TRAIN, "--batch-size", "1e400"), "'1e400'; give a whole number"),
    ("train: rate nan", (*TRAIN, "--lr", "nan"), "--lr: 'nan'; give a number >= 0"),
    ("train: rate inf", (*TRAIN, "--lr", "inf"), "--lr: 'inf'; give a number >= 0"),
    ("train: seed", (*TRAIN, "--seed", str(2**32)), "--seed: '4294967296'; give a whole number"),
    ("train: half an epoch", (*TRAIN, "--epochs", "1.5"), "--epochs: '1.5'; give a whole"),
    ("train: no process", (*TRAIN, "--devices", "0"), "--devices: '0'; give a whole number >= 1"),
    ("train: 900 processes", (*TRAIN, "--devices", "900"), "--devices: 900; there are"),
    ("train: a million workers", (*TRAIN, "--workers", "1000000"), "give a whole number from 0 to"),
    ("train: precision", (*TRAIN, "--precision", "8"), "--precision: '8'; give one of 32, bf16"),
    ("train: no pixels", (*TRAIN, "--max-pixels", "0"), "--max-pixels: '0'; give a whole number"),
    ("train: few pixels", (*TRAIN, "--max-pixels", "9"), "at most 9 are taken, raise --max-pixels"),
    ("train: on nan", (*TRAIN, "--on-nan", "ignore"), "--on-nan: 'ignore'; give stop, or skip:10"),
    ("train: backbone a path", (*TRAIN, "--backbone", "../../x"), "--backbone: '../../x'; give"),
    ("train: crop", (*TRAIN, "--augment.crop", "[0, 0]"), "give a list of 2, each a whole number"),
    ("train: bands", (*TRAIN, "--data.bands", "5"), "has 3 bands of uint8; give an image with 5"),
    ("train: transform", (*TRAIN, "--augment.transform", "x"), "'x'; give package.module:name"),
    ("train: no module", (*TRAIN, "--augment.transform", "no.such:x"), "x cannot be imported (Mod"),
    (
        "train: elsewhere",
        ("train", "--data", "s3://bucket/x", "--out", "out"),
        "--data: s3://bucket/x is not on this machine; read shards there (--data.name shards)",
    ),
    (
        "train: shards nowhere",
        ("train", "--data", "nosuch://x", "--data.name", "shards", "--out", "out"),
        "nosuch://x/shards.json: cannot be reached (Protocol not known: nosuch); check the",
    ),
    ("train: fold", (*TRAIN, "--data.fold", "1"), "--data.fold: 1, and data.folds is None; set"),
    ("train: folds", (*TRAIN, "--data.folds", "99", "--data.fold", "1"), "99 folds of 8 different"),
    (
        "train: no cache there",
        (*TRAIN, "--data.cache", "disk", "--data.cache_dir", "photo.png"),
        "data.cache_dir: photo.png: cannot be written (File exists); give another place",
        None,
        2,
        True,
    ),
    (
        "train: cache nowhere",
        (*TRAIN, "--data.cache", "disk", "--data.cache_dir", "/proc/x"),
        "data.cache_dir: /proc/x: cannot be written",
        None,
        2,
        True,
    ),
    (
        "train: a crop that no memory holds",
        (*TRAIN, "--augment.crop", "[32000, 32000]"),
        "calibrating the head: Unable to allocate",
        None,
        1,
        True,
    ),
    (
        "train: two processes for one image",
        (*TRAIN, "--devices", "2", "--data.limit", "1", "--data.val", "null"),
        "--devices: 2 processes for 1 training images; give 1 at most, or more images",
        None,
        2,
        True,
    ),
    ("train: option", (*TRAIN[:-3], "many", "--context", "sca"), "context_options.hidden: 'many'"),
    ("train: start", (*TRAIN, "--start-from", "none"), "--start-from: none: no such folder; give"),
    ("train: said twice", (*TRAIN, "--training.epochs", "3"), "--epochs says it too; give one of"),
    (
        "train: another context's option",
        (*TRAIN, "--context", "none"),
        "--model.context_options.hidden: has no effect: none does not take it; it is for sca",
    ),
    (
        "train: another context's options",
        (*train_into("out")[:5], "--context", "dot", "--model.context_options", "{layers: 2}"),
        "--model.context_options.layers: has no effect: dot does not take it; it is for sca",
    ),
    ("train: out empty", train_into(""), "--out: ''; give something, or leave it out"),
    ("train: out in proc", train_into("/proc/x"), "--out: /proc/x: cannot be written"),
    ("train: out a file", train_into("photo.png"), "--out: photo.png: is a file; give a folder"),
    ("train: out in a file", train_into("photo.png/run"), "--out: photo.png: is a file; give a"),
    ("train: out the data", train_into("data"), "--out: data holds files already; use --resume"),
    ("train: out photographs", train_into("data/images"), "--out: data/images holds files already"),
    ("train: out a run", train_into("run"), "--out: run holds a run already; use --resume"),
    ("train: out too long", train_into(LONG), "cannot be written (File name too long); give"),
    ("train: resume nothing", ("train", "--resume", "--out", "out"), "--resume: out has no run"),
    (
        "train: resume another recipe",
        ("train", "mine.yaml", "--resume", "--out", "run"),
        "--resume: comes with --out alone",
    ),
    ("evaluate: model empty", ("evaluate", "--model", ""), "--model: ''; give something"),
    ("evaluate: no model", ("evaluate", "--model", "data"), "--model: data: has no config.json"),
    ("evaluate: no data", ("evaluate", "--model", "model"), "--data: nothing; give the folder"),
    (
        "evaluate: nothing at all",
        ("evaluate",),
        "--data: nothing; give data with the",
    ),
    (
        "evaluate: built in, other classes",
        ("evaluate", "--data", "data", *EVALUATE[5:]),
        "give data with the model's classes in their order",
        None,
        2,
        True,
    ),
    ("evaluate: out a file", (*EVALUATE, "--out", "photo.png"), "--out: photo.png: is a file"),
    ("evaluate: out in proc", (*EVALUATE, "--out", "/proc/x"), "/proc/x: cannot be written"),
    ("evaluate: out empty", (*EVALUATE, "--out="), "--out: ''; give something, or leave it out"),
    ("evaluate: window", (*EVALUATE, "--window", "0"), "--window: '0'; give a whole number >= 1"),
    ("evaluate: overlap", (*EVALUATE, "--window", "32", "--overlap", "32"), "--overlap: 32 of a"),
    ("evaluate: overlap alone", (*EVALUATE, "--overlap", "4"), "--overlap: 4, but there are no"),
    ("evaluate: split leaves", (*EVALUATE, "--split", "../data/train"), "leads out of the data"),
    ("evaluate: no such split", (*EVALUATE, "--split", "dev"), "dev.txt: no such file; the splits"),
    ("evaluate: scale nan", (*EVALUATE, "--scales", "nan"), "--scales: (nan,); give numbers"),
    (
        "evaluate: scales",
        (*EVALUATE, "--scales", "1" + ",1" * 999),
        "--scales: 1000; give at most",
    ),
    ("evaluate: scale", (*EVALUATE, "--scales", "x"), "--scales: 'x'; give numbers separated by"),
    (
        "evaluate: names",
        (*EVALUATE, "--data.classes", "brick,water,leaf"),
        "class 1 is 'water', the model's is 'leaf'",
        None,
        2,
        True,
    ),
    ("evaluate: processes", (*EVALUATE, "--devices", "900"), "--devices: 900; there are"),
    ("predict: nothing", ("predict", "--model", "model", "--out", "out"), "required: IMAGES"),
    (
        "predict: empty folder",
        ("predict", "e", *PREDICT[2:]),
        "e: holds no images",
        folder("e"),
    ),
    ("predict: no match", ("predict", "*.tif", *PREDICT[2:]), "*.tif: matches no image"),
    ("predict: name with escapes", ("predict", "\x1b[31m", *PREDICT[2:]), "\\x1b[31m: matches no"),
    ("predict: out a file", (*PREDICT, "--out", "label.png"), "--out: label.png: is a file; give"),
    ("predict: out in a file", (*PREDICT, "--out", "label.png/x"), "--out: label.png: is a file"),
    ("predict: out in proc", (*PREDICT, "--out", "/proc/x"), "--out: /proc/x: cannot be written"),
    ("predict: out too long", (*PREDICT, "--out", LONG), "cannot be written (File name too long)"),
    ("predict: over the photograph", (*PREDICT, "--out", "."), "would replace the image"),
    (
        "predict: two of one name",
        ("predict", "photo.png", "data/photo.png", *PREDICT[2:]),
        "would be out/photo.png, and so would photo.png; rename one",
        lambda: shutil.copy("photo.png", "data/photo.png"),
    ),
    ("predict: shard 3 of 2", (*PREDICT, "--shard", "3/2"), "--shard: '3/2'; give I/N with I"),
    ("predict: shard of digits", (*PREDICT, "--shard", f"1/{DIGITS}"), "give I/N with I from 1"),
    ("predict: window of digits", (*PREDICT, "--window", DIGITS), "; give a whole number >= 1"),
    ("predict: both", (*PREDICT, "--overwrite", "--skip-existing"), "give one of the two"),
    (
        "predict: a folder hides the built-in model",
        ("predict", "photo.png", "--model", "outdoor"),
        "--model: outdoor: has no config.json, and hides the built-in model of its name; rename",
        folder("outdoor"),
    ),
    (
        "predict: unknown name",
        ("predict", "photo.png", "--model", "outdor"),
        "did you mean outdoor?",
    ),
    (
        "predict: default place is a file",
        ("predict", "photo.png"),
        "--out: predictions: is a file; give a folder",
        lambda: shutil.copy("photo.png", "predictions"),
    ),
    (
        "predict: model too long",
        ("predict", "photo.png", "--model", LONG, "--out", "o"),
        "too long",
    ),
    ("predict: precision", (*PREDICT, "--precision", "half"), "--precision: 'half'; give one of"),
    (
        "explain: grid",
        (*EXPLAIN, "--grid", "99999x99999"),
        "--grid: 99999x99999 of an image with 31",
    ),
    ("explain: out in proc", (*EXPLAIN, "--out", "/proc/b.png"), "/proc/b.png: cannot be written"),
    ("explain: out too long", (*EXPLAIN, "--out", f"{LONG}.png"), "(File name too long); give"),
    ("compare: --context", (*COMPARE, "--context", "sca"), "several are compared; use --contexts"),
    ("compare: option", (*COMPARE, "--contexts", "none,sca:wide=1"), "sca:wide=1: 'wide'; did"),
    ("compare: devices", (*COMPARE, "--devices", "2"), "a comparison runs on one device; use 1"),
    ("compare: keep", (*COMPARE, "--keep", "some"), "--keep: 'some'; give one of models, all, n"),
    ("compare: split", (*COMPARE, "--split", "valid"), "valid.txt: no such file; the splits here"),
    (
        "compare: val of folds",
        (*COMPARE, "--split", "val", "--folds", "2", "--data.val", "null"),
        "give train, test or all",
    ),
    ("compare: one context", (*COMPARE, "--model.context", "sca"), "has no effect in this command"),
    (
        "compare: an option of none of them",
        (*COMPARE, "--contexts", "none", "average"),
        "--model.context_options.hidden: has no effect: none, average does not take it; it is for",
    ),
    (
        "compare: an option of another one",
        (*COMPARE, "--contexts", "none:hidden=3", "sca"),
        "--contexts: none:hidden=3: hidden: has no effect: none does not take it; it is for sca",
    ),
    (
        "evaluate: idle limit",
        (*EVALUATE, "--data.limit", "3"),
        "--data.limit: has no effect in this",
    ),
    ("evaluate: training idle", (*EVALUATE, "--training.lr", "3"), "has no effect in this command"),
    ("evaluate: network idle", (*EVALUATE, "--model.head", "fcn"), "has no effect in this command"),
    (
        "evaluate: scales idle",
        (*EVALUATE, "--tta", "--scales", "2"),
        "--scales: --tta has its own",
    ),
    (
        "evaluate: twice idle",
        (*EVALUATE, "--machine.workers", "1"),
        "--workers says it too",
    ),
    ("predict: a key", (*PREDICT, "--data.limit", "3"), "this command has no such option; see"),
    ("check: limit", ("data", "check", "data", "--data.limit", "3"), "has no effect in this"),
    ("check: recipe", ("data", "check", "data", "--recipe", "own"), "--recipe: own: no such file"),
    (
        "compare: context",
        (*COMPARE, "--contexts", "gat"),
        "--contexts: 'gat'; did you mean gated? give one",
    ),
    (
        "compare: no number",
        (*COMPARE, "--contexts", "none", "sca:pair_channels=x"),
        "pair_channels: 'x'; give a whole number",
    ),
    ("compare: twice", (*COMPARE, "--contexts", "sca", "sca"), "sca sca; give each once"),
    (
        "compare: code in an option",
        (*COMPARE, "--contexts", "none", "sca:hidden=!!python/object/apply:os.system [ls]"),
        "could not determine a constructor for the tag",
    ),
    (
        "compare: a giant option",
        (*COMPARE, "--contexts", "none", f"sca:hidden={10**12}"),
        "hidden: 1000000000000; give a whole number from 1 to 16384",
    ),
    ("compare: seeds 0", (*COMPARE, "--seeds", "0"), "--seeds: '0'; give a whole number from 1"),
    ("compare: seeds 1e11", (*COMPARE, "--seeds", "100000000000"), "give a whole number from 1 to"),
    ("compare: folds 1", (*COMPARE, "--folds", "1"), "--folds: '1'; give a whole number >= 2"),
    ("compare: folds 1e9", (*COMPARE, "--folds", "1000000000"), "data.folds: '1000000000'; give"),
    ("compare: jobs 0", (*COMPARE, "--jobs", "0"), "--jobs: '0'; give a whole number >= 1"),
    ("compare: time nan", (*COMPARE, "--time-limit", "nan"), "'nan'; give seconds, more than 0"),
    ("compare: out the data", (*COMPARE, "--out", "data"), "--out: data holds classes.txt, and no"),
    ("check: nothing", ("data", "check"), "arguments are required: DIR; see scaseg data check"),
    ("check: empty", ("data", "check", "e"), "e/images: no such folder; give images/", folder("e")),
    ("check: map", ("data", "check", "data", "--label-map", "{255:1}"), "'{255:1}'; give a map"),
    ("check: classes", ("data", "check", "data", "--classes", "a,,b"), "'a,,b'; give names sep"),
    ("check: void", ("data", "check", "data", "--ignore-index", "-1"), "'-1'; give a whole"),
    ("check: workers", ("data", "check", "data", "--workers", "0"), "'0'; give a whole number >="),
    ("check: no folder", ("data", "check", "nope"), "nope: no such folder; give the one that"),
    ("check: name", ("data", "check", "data", "--name", "x"), "--name: 'x'; give one of folder"),
    ("check: deep map", ("data", "check", "data", "--label-map", "[" * 3000), "such as {255: 1}"),
    (
        "check: code in a map",
        ("data", "check", "data", "--label-map", "!!python/object/apply:os.system [ls]"),
        "give a mapping of whole numbers, such as {255: 1}",
    ),
    (
        "check: giant map",
        ("data", "check", "data", "--label-map", f"{{1: {10**20}}}"),
        "65535 at most",
    ),
    ("check: ignore", ("data", "check", "data", "--ignore-index", DIGITS), "from 0 to 65535"),
    ("prepare: name", ("data", "prepare", "nope", "data", "out"), "FORMAT: 'nope'; give one of"),
    prepared("its format is not recognized; give a format by name", "auto", "model"),
    prepared("data/JPEGImages: no such folder; give VOC2012", "voc", "data"),
    prepared("has no split 'train'; there are none", "cityscapes", "data"),
    prepared("has no split 'train'; there are none", "ade20k", "data"),
    prepared("no pair of endings explains", "suffix", "data/images"),
    prepared("--label-suffix: not an option of this", "voc", "data", "--label-suffix", "_m.png"),
    prepared("nowhere: no such file; check", "colors", "data", "--classes-file", "nowhere"),
    prepared("/dev/zero: is a device", "colors", "data", "--classes-file", "/dev/zero"),
    prepared("photo.png: cannot be read ('utf", "colors", "data", "--classes-file", "photo.png"),
    prepared("--unknown-colors: 'x'; give one of", "colors", "data", "--unknown-colors", "x"),
    prepared("--label-map: '{'; give a mapping", "folder", "data", "--label-map", "{"),
    ("prepare: inside", ("data", "prepare", "folder", "data", "data/o"), "lies inside the data"),
    ("prepare: a file", ("data", "prepare", "folder", "data", "photo.png"), "DST: photo.png: is a"),
    (
        "prepare: in proc",
        ("data", "prepare", "folder", "data", "/proc/x"),
        "DST: /proc/x: cannot be",
    ),
    (
        "prepare: too long",
        ("data", "prepare", "folder", "data", LONG),
        "(File name too long); give",
    ),
    ("bench: sizes", ("bench", "--sizes", "0"), "--sizes: '0'; give whole numbers >= 1"),
    ("bench: 1e15", ("bench", "--sizes", str(10**15)), "but "),
    ("bench: channels", ("bench", "--channels", str(10**15)), "are free; give less"),
    ("demo: out a file", ("demo", "--out", "photo.png"), "--out: photo.png: is a file; give a"),
    ("demo: out the data", ("demo", "--out", "data"), "data holds classes.txt, and no demo"),
    ("demo: out in proc", ("demo", "--out", "/proc/x"), "--out: /proc/x: cannot be written"),
    ("demo: images", ("demo", "--images", "999999", "--out", "out"), "--images: 999999; there are"),
)


@BAD
def test_refused(world, capsys, case):
    refuse(case, capsys)


@cases(
    ("train", (*TRAIN, "--device", "cuda"), "--device: cuda is not available here; use cpu"),
    ("evaluate", (*EVALUATE, "--device", "cuda"), "--device: cuda is not available here; use"),
    ("predict", (*PREDICT, "--device", "cuda"), "--device: cuda is not available here; use cpu"),
    (
        "explain",
        (*EXPLAIN, "--point", "1,1", "--device", "cuda"),
        "--device: cuda is not available",
    ),
    (
        "bench",
        ("bench", "--device", "cuda"),
        "--device: cuda is not available here; use cpu or auto",
    ),
)
def test_no_gpu(world, capsys, monkeypatch, case):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuse(case, capsys)
