"""Every parser of the command line, by the words that lead to it."""

from scaseg.cli import build_parser


def all_parsers(parser=None, words=()):
    parser = parser or build_parser()
    yield words, parser
    for name, below in parser.commands().items():
        yield from all_parsers(below, (*words, name))


COMMANDS = [words for words, _ in all_parsers()]


def named(words):
    return " ".join(("scaseg", *words))
