"""Real images and weights, where they lie beside the checkout; tests without them skip, visibly."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"
VGG16 = SHARED / "weights" / "vgg16_features_fp16.safetensors"
MOBILENET_V2 = SHARED / "weights" / "mobilenet_v2_features.safetensors"


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"needs {path.relative_to(SHARED.parent)}")
