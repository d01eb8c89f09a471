"""Formulae in LaTeX become MathML, which browsers show by themselves: no script, no fonts."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

from scaseg.errors import UserError

_CODE = r"(?P<code>^```.*?^```|`[^`\n]+`)"
_FORMULA = re.compile(
    _CODE + r"|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$", re.DOTALL | re.MULTILINE
)
# operators that latex2mathml does not know
_NAMES = {r"\arg": r"\mathrm{arg}"}
_SYMBOL = r"(<m[io][^>]*>[^<]*</m[io]>)"
_PRIME = r"<mi>(&#x0203[23];)</mi>"
# Where no mathematical font is installed, a raised prime is a speck: primes stand on the line,
# where text fonts have raised them already. Functions keep a distance from what follows.
_CORRECTED = {
    rf"<msup>{_SYMBOL}{_PRIME}</msup>": r"<mrow>\1<mo lspace='0' rspace='0'>\2</mo></mrow>",
    rf"<msubsup>{_SYMBOL}({_SYMBOL}|<mrow>.*?</mrow>){_PRIME}</msubsup>": (
        r"<msub><mrow>\1<mo lspace='0' rspace='0'>\4</mo></mrow>\2</msub>"
    ),
    r"<mi>(log|cos|max|min)</mi>(?=<mi>)": r"<mi>\1</mi><mspace width='0.17em'/>",
}


def with_mathml(markdown: str) -> str:
    """Replace $…$ and $$…$$ outside code."""
    return _FORMULA.sub(_replace, markdown)


def _replace(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found["code"]
    latex = found["block"] or found["inline"]
    for name, known in _NAMES.items():
        latex = re.sub(re.escape(name) + r"(?![a-zA-Z])", lambda _, known=known: known, latex)
    display = "inline" if found["block"] is None else "block"
    mathml = convert(latex.strip(), display=display).replace("\n", " ")
    for before, after in _CORRECTED.items():
        mathml = re.sub(before, after, mathml)
    left = re.search(r"\\[a-zA-Z]+", mathml)
    if left is not None:
        problem = f"{left[0]} was not understood"
        raise UserError(f"formula {latex.strip()!r}", problem, "write it plainly")
    if display == "inline":
        # a line that begins with <math> would be taken for a block, and its paragraph torn
        return f"<span>{mathml}</span>"
    return f'\n\n<div class="formula">{mathml}</div>\n\n'
