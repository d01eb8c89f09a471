"""The pictures that a server holds: bounded in memory, with an owner, forgotten after a time."""

from __future__ import annotations

import json
import secrets
import time
from asyncio import Lock as AsyncLock
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock
from typing import Any

from numpy.typing import NDArray

MOST_BYTES = 512 << 20  # of all pictures together
EXPIRY = 3600.0  # seconds after a picture was last asked for
PROGRAM = ""  # the owner of pictures by clients without a session, whose ids are their keys


@dataclass
class Picture:
    """A picture (H, W, C), who may see it (None: everyone), and what the page gets of it."""

    name: str
    pixels: NDArray[Any]
    owner: str | None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))  # 128 bits: not guessed
    features: dict[str, Any] = field(default_factory=dict)  # by model; kept for a few pictures
    segmenting: AsyncLock = field(default_factory=AsyncLock)  # held by the visitor that began it
    payload: bytes = b""  # JSON; empty until it was segmented
    summary: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, bytes] = field(default_factory=dict)  # PNGs, by model
    used: float = field(default_factory=time.monotonic)

    @property
    def memory(self) -> int:
        return self.pixels.nbytes + len(self.payload) + sum(map(len, self.labels.values()))

    def keep(self, payload: dict[str, Any], labels: dict[str, bytes]) -> None:
        """Take over what a segmentation gave."""
        models = payload["models"]
        self.labels = labels
        self.payload = json.dumps(payload, separators=(",", ":")).encode()
        self.summary = {
            "id": self.id,
            "name": self.name,
            "width": payload["image"]["width"],
            "height": payload["image"]["height"],
            "classes": models[0]["classes"],
            "areas": dict(zip(models[0]["classes"], models[0]["areas"], strict=True)),
            "models": [
                {
                    "name": one["name"],
                    "context": one["context"],
                    "classes": one["classes"],
                    "areas": dict(zip(one["classes"], one["areas"], strict=True)),
                    "map": {"height": one["grid"]["map"][0], "width": one["grid"]["map"][1]},
                }
                for one in models
            ],
        }


def shared_picture(name: str, pixels: NDArray[Any]) -> Picture:
    """A picture that everyone sees; its id follows from its content: a link to it lasts."""
    return Picture(name, pixels, None, blake2b(pixels.tobytes(), digest_size=8).hexdigest())


class Pictures:
    """All pictures in the order in which they came; shared ones (no owner) stay for ever."""

    def __init__(self, most_bytes: int = MOST_BYTES, expiry: float = EXPIRY) -> None:
        self._most_bytes, self._expiry = most_bytes, expiry
        self._held: dict[str, Picture] = {}
        self._lock = Lock()

    def add(self, picture: Picture) -> None:
        """Keep a picture; the oldest uploads go where the memory would not do."""
        with self._lock:
            self._held[picture.id] = picture
            self._forget()

    def find(self, key: str, visitor: str | None) -> Picture | None:
        """Return a picture that this visitor may see.

        visitor: the session of a browser, None for a program without one: the id itself, which
        cannot be guessed and is told to nobody else, is then what it shows. It opens no picture of
        a browser: their ids stand in addresses, which people pass on.
        """
        with self._lock:
            self._forget()
            picture = self._held.get(key)
            if picture is None or picture.owner not in (None, visitor or PROGRAM):
                return None
            picture.used = time.monotonic()
            return picture

    def seen_by(self, visitor: str | None) -> Iterator[Picture]:
        """The shared pictures, and this visitor's own."""
        with self._lock:
            self._forget()
            held = list(self._held.values())
        shared = [one for one in held if one.owner is None]
        own = [one for one in held if visitor and one.owner == visitor]
        return iter(shared + own)

    def remove(self, picture: Picture) -> None:
        """Forget a picture."""
        with self._lock:
            self._held.pop(picture.id, None)

    def forget_expired(self) -> None:
        """Forget what nobody has asked for; otherwise that waits for the next request."""
        with self._lock:
            self._forget()

    @property
    def memory(self) -> int:
        """Bytes of all pictures."""
        with self._lock:
            return sum(one.memory for one in self._held.values())

    def _forget(self) -> None:
        oldest = time.monotonic() - self._expiry
        uploads = [one for one in self._held.values() if one.owner is not None]
        total = sum(one.memory for one in uploads)
        for one in sorted(uploads, key=lambda one: one.used):
            if one.used >= oldest and total <= self._most_bytes:
                break
            total -= one.memory
            del self._held[one.id]
