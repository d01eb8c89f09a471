"""JSON and XML by strangers: one line that names the file and the place."""

import pytest

from scaseg.data.decode import documents
from scaseg.data.decode.documents import read_json, read_xml, sample

BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<annotations>&b;</annotations>"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": [1,\n 2', r"not valid JSON \(line 2, column 3: "),
        (b"[" * 200_000, r"not valid JSON \(nested too deeply\)"),
        (b"[1]", r"\[1\]; give a mapping"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b"", r"not valid JSON \(line 1, column 1"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_json_that_is_none(tmp_path, content, said):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.json: {said}"):
        read_json(tmp_path / "a.json")


def test_places_in_json(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"shapes": [{"label": "x"}, {"label": 3}, 4], "n": true}')
    document = read_json(path)
    first = next(document.each("shapes"))
    assert first.get("label", str) == "x"
    assert first.get("missing", str, "-") == "-"
    with pytest.raises(ValueError, match=r"a.json: shapes\[0\].points: nothing; give a list"):
        first.get("points", list)
    with pytest.raises(ValueError, match=r"a.json: shapes\[1\].label: 3; give a text"):
        [shape.get("label", str) for shape in document.each("shapes")]
    with pytest.raises(ValueError, match=r"a.json: n: True; give a whole number"):
        document.get("n", int)
    with pytest.raises(ValueError, match=r"a.json: shapes\[2\]: 4; give a mapping"):
        list(document.each("shapes"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB.encode(), "line 2: a document type; take it out"),
        (BOMB.replace("1.0", '1.0" encoding="utf-16').encode("utf-16"), "line 2: a doc"),
        (b"<a>" * 100, "line 1: elements nested too deeply"),
        (b"<a><b></a>", r"not valid XML \(mismatched tag: line 1, column 8\)"),
        (b"", r"not valid XML \(no element found"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not valid XML"),
    ],
)
def test_xml_that_is_none(tmp_path, content, said):
    (tmp_path / "a.xml").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.xml: {said}"):
        read_xml(tmp_path / "a.xml")


def test_elements_know_their_lines(tmp_path):
    (tmp_path / "a.xml").write_text('<a>\n <b c="1.5" d="x" e="nan"/>\n text</a>')
    root = read_xml(tmp_path / "a.xml")
    [child] = root.find("b")
    assert (root.text.strip(), child.line, child.number("c")) == ("text", 2, 1.5)
    for name, said in (("d", "d='x'; give a number"), ("e", "e='nan'"), ("f", "<b> has no f")):
        with pytest.raises(ValueError, match=f"^{said}"):
            child.number(name)


def test_sizes_are_limited_and_a_sample_is_small(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("x" * 100)
    monkeypatch.setattr(documents, "MOST_BYTES", 99)
    for read in (read_json, read_xml):
        with pytest.raises(ValueError, match=r"a.json: 100 bytes; 99 are taken"):
            read(path)
    monkeypatch.setattr(documents, "SAMPLE", 10)
    path.write_text("a" * 50 + "b" * 50)
    assert sample(path) == b"a" * 15 + b"b" * 15
    assert sample(tmp_path) == sample(tmp_path / "nowhere") == b""
