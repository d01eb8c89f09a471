"""Build wheel and source archive, the same bytes from the same commit on any machine.

    python .ci/dist.py [FOLDER]        (dist; run from the root of a checkout)

setuptools takes times, modes and owners from the disk; here they are those of the commit
(SOURCE_DATE_EPOCH, else the date of the last commit), 644, and nobody's.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path


def main() -> None:
    """Build both, and say how large they are."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    if "SOURCE_DATE_EPOCH" not in os.environ:
        command = ["git", "log", "-1", "--format=%ct"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        os.environ["SOURCE_DATE_EPOCH"] = done.stdout.strip()
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for leftover in ("build/lib", "build/bdist.linux-x86_64", "src/scaseg.egg-info"):
        shutil.rmtree(leftover, ignore_errors=True)  # files of another commit would come along
    from setuptools import build_meta

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / build_meta.build_wheel(str(out))
    archive = out / build_meta.build_sdist(str(out))
    wheel.write_bytes(plain_wheel(wheel, epoch))
    archive.write_bytes(plain_sdist(archive, epoch))
    for path in (wheel, archive):
        path.chmod(0o644)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def plain_wheel(path: Path, epoch: int) -> bytes:
    """Write a zip again, in order, with one date and one mode."""
    found = io.BytesIO()
    date = time.gmtime(epoch)[:6]
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(found, "w") as new:
        # RECORD stays last, as the format recommends
        for name in sorted(old.namelist(), key=lambda name: (name.endswith("/RECORD"), name)):
            entry = zipfile.ZipInfo(name, date)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, old.read(name))
    return found.getvalue()


def plain_sdist(path: Path, epoch: int) -> bytes:
    """Write a tar.gz again, in order, with one date, one mode and no owner."""
    plain, found = io.BytesIO(), io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for name in sorted(old.getnames()):
            entry = old.getmember(name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime, entry.pax_headers = epoch, {}
            entry.mode = 0o755 if entry.isdir() else 0o644
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    with gzip.GzipFile(fileobj=found, mode="wb", filename="", mtime=epoch) as file:
        file.write(plain.getvalue())
    return found.getvalue()


if __name__ == "__main__":
    main()
