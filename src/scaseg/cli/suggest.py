"""The word that was meant: the nearest of those that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# people's words for ours, where the spelling would suggest something else (gpu is nearest to cpu)
SYNONYMS = {"gpu": "cuda", "metal": "mps", "fp16": "16", "fp32": "32", "bfloat16": "bf16"}

# options of other commands that people try where another one (the key) does what they mean
INSTEAD = {
    "--backbone-weights": {
        "--model": "a training starts from a model's backbone by --backbone-weights outdoor"
    }
}

_CHOICE = re.compile(r"(.*?\B'([^']*)'; )((?:give|choose) (?:one|some) of )(.+)")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Find the known word that `word` was probably meant to be; None where none is near.

    >>> nearest("trian", ["train", "evaluate"])
    'train'
    """
    words = list(known)
    if SYNONYMS.get(word.lower()) in words:
        return SYNONYMS[word.lower()]
    near = difflib.get_close_matches(word, words, n=1)
    return near[0] if near else None


def instead(option: str, known: Iterable[str]) -> str | None:
    """Say which of the known options does what an unknown one was probably meant to do.

    >>> instead("--model", ["--epochs", "--backbone-weights"])
    "a training starts from a model's backbone by --backbone-weights outdoor"
    """
    return next((INSTEAD[name][option] for name in known if option in INSTEAD.get(name, {})), None)


def with_suggestion(message: str) -> str:
    """Put the nearest choice into an error that lists them, whoever wrote it.

    >>> with_suggestion("--context: 'scaa'; give one of none, average, sca, dot")
    "--context: 'scaa'; did you mean sca? give one of none, average, sca, dot"
    """
    found = _CHOICE.fullmatch(message)
    if found is None:
        return message
    came, word, verb, choices = found.groups()
    near = nearest(word, choices.split(", "))
    return message if near is None else f"{came}did you mean {near}? {verb}{choices}"
