"""The site builds, and what would make it lean on other machines or lead nowhere is found."""

import importlib
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

SITE = ROOT / "docs" / "site"


def module(name, monkeypatch):
    monkeypatch.syspath_prepend(SITE)
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("zensical", reason="needs zensical: `make docs` installs it")
    work = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, SITE / "build.py", work], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"open {work / 'html' / 'index.html'}\n"
    return work / "html"


def test_every_page_is_there(built):
    for name in ("index", "tutorial", "mathematics", "settings", "troubleshooting", "api/scaseg"):
        assert (built / f"{name}.html").is_file()


def test_the_card_of_the_built_in_model_is_a_page(built):
    page = (built / "builtin_model.html").read_text(encoding="utf-8")
    assert "license: apache-2.0" not in page
    assert 'href="builtin_model.html"' in (built / "index.html").read_text(encoding="utf-8")


def test_formulae_are_mathml(built):
    page = (built / "mathematics.html").read_text(encoding="utf-8")
    assert page.count("<math ") > 150
    assert "<p>$" not in page
    assert "<p><span><math" in page  # a paragraph that begins with a formula stays whole


def test_settings_come_from_the_code(built):
    page = (built / "settings.html").read_text(encoding="utf-8")
    assert "training.class_weight_range" in page
    assert "<!-- site:" not in page


def test_faults_are_found(tmp_path, monkeypatch):
    faults = module("checks", monkeypatch).faults
    (tmp_path / "a.html").write_text('<h1 id="here"></h1><a href="b.html#there">b</a>')
    (tmp_path / "b.html").write_text('<a href="a.html#here">a</a><p id="there">')
    assert faults(tmp_path) == []
    (tmp_path / "c.html").write_text(
        '<a href="a.html#nowhere"></a><a href="d.html"></a><a href="https://example.org"></a>'
        '<script src="https://example.org/x.js"></script><img src="gone.png">'
    )
    (tmp_path / "s.css").write_text('body { background: url("https://example.org/x.png") }')
    assert faults(tmp_path) == [
        "c.html: fetches https://example.org/x.js",
        "c.html: a.html#nowhere has no such place",
        "c.html: d.html does not exist",
        "c.html: gone.png does not exist",
        "s.css: fetches from elsewhere",
    ]


def test_python_pages_hold_signatures_and_examples(monkeypatch):
    pages = module("api", monkeypatch).api_pages()
    assert "SelectiveContext(\n    in_channels: int," in pages["scaseg"]
    assert "```pycon\n>>> import" in pages["scaseg"]
    assert "## selective_context\n" in pages["scaseg"]
    assert "## focal\n" in pages["losses"]
    assert "## create_model\n" in pages["scaseg"]


def test_a_broken_link_stops_the_build(monkeypatch, tmp_path):
    pytest.importorskip("latex2mathml", reason="needs latex2mathml: `make docs` installs it")
    pages = module("pages", monkeypatch)
    page = ROOT / "docs" / "data.md"
    assert pages.relinked("[x](tutorial.md#y)", page, page) == "[x](tutorial.md#y)"
    assert pages.relinked("[x](../src/scaseg/recipes)", page, page) == "x"
    assert pages.relinked("[m](../src/scaseg/ops/README.md#z)", page, page) == (
        "[m](mathematics.md#z)"
    )
    with pytest.raises(ValueError, match=r"docs/data.md: the link gone.md leads nowhere"):
        pages.relinked("[x](gone.md)", page, page)
