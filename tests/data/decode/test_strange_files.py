"""What is no image, whatever it is called: pipes, pages, names that a terminal would obey."""

import os
import socket

import numpy as np
import pytest

from scaseg.data.decode.image import read_image, read_labels
from scaseg.data.decode.matlab import read_names
from tests.data.strangers import COLOR, PIXELS, refused, written
from tests.faults.image_seeds import saved


@pytest.mark.skipif(os.name == "nt", reason="of POSIX")
@pytest.mark.parametrize("read", [read_image, read_labels, read_names])
def test_a_pipe_is_refused_at_once(read, tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    refused(read, tmp_path / "pipe.jpg", "pipe.jpg: is a named pipe; give a file")


@pytest.mark.skipif(os.name == "nt", reason="of POSIX")
def test_devices_folders_sockets_and_circling_links(tmp_path, monkeypatch):
    refused(read_image, "/dev/zero", "/dev/zero: is a device; give a file")
    (tmp_path / "folder.jpg").mkdir()
    refused(read_image, tmp_path / "folder.jpg", "is a folder; give a file")
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.jpg")
        refused(read_image, "socket.jpg", "is a socket; give a file")
    (tmp_path / "a.jpg").symlink_to(tmp_path / "b.jpg")
    (tmp_path / "b.jpg").symlink_to(tmp_path / "a.jpg")
    refused(read_image, tmp_path / "a.jpg", "cannot be opened (Too many levels")
    (tmp_path / "dead.jpg").symlink_to(tmp_path / "nowhere.jpg")
    refused(read_image, tmp_path / "dead.jpg", "no such file")
    refused(read_image, tmp_path / ("x" * 300), "cannot be opened (File name too long)")
    refused(read_image, "a\0b.jpg", r"a\x00b.jpg: cannot be opened (embedded null")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_somebody_else(tmp_path):
    COLOR.save(tmp_path / "secret.png")
    (tmp_path / "secret.png").chmod(0)
    refused(read_image, tmp_path / "secret.png", "cannot be opened (Permission denied)")


def test_names_with_control_characters_stay_in_one_line(tmp_path):
    name = written(tmp_path / "holi\nday\x1b[31m.jpg", b"no image")
    assert r"holi\x0aday\x1b[31m.jpg: not an image" in refused(read_image, name)
    COLOR.save(tmp_path / "a\nb.png")
    assert read_image(tmp_path / "a\nb.png").shape == PIXELS.shape


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_names_that_are_not_utf_8(tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9.png"
    try:
        with open(name, "wb") as file:
            file.write(saved(COLOR, "PNG"))
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    path = os.fsdecode(name)
    np.testing.assert_array_equal(read_image(path), PIXELS)
    with open(name, "wb") as file:
        file.write(b"GIF89a")
    assert r"caf\xe9.png: not an image (it is a GIF)" in refused(read_image, path)


# What is another kind of file


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "it is empty); fetch it again"),
        (b"GIF89a\1\0\1\0", "it is a GIF); save it as JPEG, PNG, BMP, TIFF or WEBP"),
        (b"%PDF-1.7\n", "it is a PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is PostScript (EPS)"),
        (b"\xc5\xd0\xd3\xc6" + b"\0" * 30, "it is PostScript (EPS)"),
        (b'<?xml version="1.0"?>\n<!-- made by -->\n<svg xmlns="x">', "it is SVG"),
        (b"\xef\xbb\xbf <SVG>", "it is SVG"),
        (b"<!DOCTYPE html><html>404", "it is a web page (HTML)); fetch it again"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "it is HEIC"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "it is AVIF"),
        (b"PK\3\4", "it is an archive (ZIP)); unpack it"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS); run `git lfs pull`"),
        (b"hello", "JPEG, PNG, BMP, TIFF, WEBP are read"),
        (b"RIFF\4\0\0\0WAVE", "JPEG, PNG, BMP, TIFF, WEBP are read"),
    ],
)
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_what_is_no_image_is_named_whatever_it_is_called(data, what, suffix, tmp_path):
    path = written(tmp_path / f"photo.{suffix}", data)
    assert f"photo.{suffix}: not an image" in refused(read_image, path, what)
    refused(read_labels, path, what)


def test_the_name_decides_nothing(tmp_path):
    path = written(tmp_path / "photo.jpg", saved(COLOR, "PNG"))
    np.testing.assert_array_equal(read_image(path), PIXELS)


# What is too large
