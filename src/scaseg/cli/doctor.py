"""scaseg doctor."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from scaseg.cli.parser import Parser, add_option
from scaseg.errors import WorkError, one_line
from scaseg.io.paths import user_cache
from scaseg.system import available_memory, in_words, usable_cores
from scaseg.version import __version__

FOR_DEVELOPERS = ("dev", "docs")  # extras of the checkout


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "doctor",
        help="versions, devices, what is missing and how to get it",
        description="Say what is installed and found here: versions, devices, memory, the cache, "
        "the extras and the command that installs each. Exit code 1 where something that every "
        "command needs is missing, too old or broken.",
        epilog="example: scaseg doctor; the first thing to add to a report of a problem",
    )
    add_option(parser, "--json", "print JSON and nothing else")
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> None:
    needed, extras = _requirements()
    report: dict[str, Any] = {
        "scaseg": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": usable_cores(),
        "packages": {name: version for name, (version, _) in needed.items()},
        "devices": _devices(),
        "cache": str(user_cache() or "none"),
        "extras": extras,
        "problems": _problems({name: fault for name, (_, fault) in needed.items() if fault}),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(_lines(report)))
    if report["problems"]:
        raise WorkError("doctor", f"problems: {len(report['problems'])}", "see above")


def _requirements() -> tuple[dict[str, tuple[str | None, str]], dict[str, list[str]]]:
    """What every command needs: name -> (version, what is wrong); and what extras lack.

    Both are read from the metadata of the installed package, so that they cannot be outdated.
    """
    from packaging.requirements import Requirement  # comes with matplotlib and Lightning

    needed: dict[str, tuple[str | None, str]] = {}
    extras: dict[str, list[str]] = {}
    try:
        requirements = [Requirement(text) for text in metadata.requires("scaseg") or ()]
        names = metadata.metadata("scaseg").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:  # run from a checkout, by PYTHONPATH
        return needed, extras
    for extra in ("", *sorted(set(names) - set(FOR_DEVELOPERS))):
        missing = []
        for one in requirements:
            if one.marker is not None and not one.marker.evaluate({"extra": extra}):
                continue
            if extra and one.marker is None:
                continue
            version = _version(one.name)
            fits = version is not None and one.specifier.contains(version, prereleases=True)
            fault = "" if fits else f"is {version or 'missing'}, {one.specifier or 'any'} fits"
            if not extra:
                needed[one.name] = version, fault
            elif not fits:
                missing.append(one.name)
        if extra:
            extras[extra] = missing
    return needed, extras


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> dict[str, str]:
    """Every device that torch finds, and what it has."""
    try:
        import torch
    except Exception:  # broken installations raise anything; `_problems` says what
        return {}
    free = available_memory(torch.device("cpu"))
    found = {"cpu": f"{in_words(free)} free" if free else "there"}
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        kernels = "" if find_spec("triton") else ", no triton: slower blocks"
        found[f"cuda:{index}"] = f"{card.name}, {in_words(card.total_memory)}{kernels}"
    if torch.backends.mps.is_available():
        found["mps"] = "there"
    return found


def _problems(faults: dict[str, str]) -> list[str]:
    """What is wrong with what every command needs, each with a remedy."""
    found = [f"{name} {fault}; pip install --upgrade scaseg" for name, fault in faults.items()]
    for name in ("torch", "numpy", "PIL", "pytorch_lightning"):
        if find_spec(name) is None:
            continue  # named above
        try:
            import_module(name)
        except Exception as error:
            remedy = f"install it again: pip install --force-reinstall --no-deps {name}"
            if "torchvision" in str(error):  # a torchvision of another torch breaks what finds it
                remedy = "pip uninstall torchvision: it is for another build of torch"
            found.append(f"{name} cannot be imported ({one_line(str(error), 160)}); {remedy}")
    return found


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [
        f"scaseg {report['scaseg']}, Python {report['python']}, {report['system']}, "
        f"{report['cores']} cores",
        "",
        "packages",
        *(f"  {name} {version or 'missing'}" for name, version in report["packages"].items()),
    ]
    if not report["packages"]:
        lines.append("  not known: scaseg was not installed by pip")
    lines += ["devices", *(f"  {name}: {what}" for name, what in report["devices"].items())]
    lines += ["cache", f"  {report['cache']}", "extras"]
    for name, missing in report["extras"].items():
        how = f"without {', '.join(missing)}: pip install 'scaseg[{name}]'" if missing else "there"
        lines.append(f"  {name}: {how}")
    lines += ["problems", *(f"  {problem}" for problem in report["problems"] or ["none"])]
    return lines
