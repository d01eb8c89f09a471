"""Networks: backbones, heads, the segmenter, pretrained weights."""
