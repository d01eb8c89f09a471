"""Segment a photograph with an exported model: onnxruntime and Pillow, nothing of scaseg.

scaseg export --out outdoor.onnx
python segment_onnx.py outdoor.onnx photo.jpg labels.png
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, photo, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
about = session.get_modelmeta().custom_metadata_map
palette, mean, std, fit = (json.loads(about[key]) for key in ("palette", "mean", "std", "fit"))
classes = json.loads(about["classes"])

image = ImageOps.exif_transpose(Image.open(photo)).convert("RGB")
width, height = image.size
factor = min(fit[0] / height, fit[1] / width) if fit else 1
seen = image.resize((round(width * factor), round(height * factor)), Image.Resampling.BILINEAR)
pixels = (np.asarray(seen, np.float32) / 255 - mean) / std  # (h, w, 3)
images = pixels.transpose(2, 0, 1)[None].astype(np.float32)  # (1, 3, h, w)

scores = session.run(["scores"], {"images": images})[0][0]  # (classes, h, w)
labels = Image.fromarray(scores.argmax(0).astype(np.uint8)).resize((width, height), 0)
labels.putpalette(np.ravel(palette).tolist())
labels.save(out)
shares = np.bincount(np.ravel(labels), minlength=len(classes)) / (width * height)
print(*(f"{name} {share:.0%}" for name, share in zip(classes, shares, strict=False)), sep=", ")
