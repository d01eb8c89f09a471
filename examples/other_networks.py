"""SelectiveContext inside other people's networks: what to change, in a few lines each.

python other_networks.py [NAME...]   (own, smp, torchvision, segformer, mmseg; all by default)
Each is trained for some steps on one batch: the loss must fall, and every weight of the context
must have had a gradient. What is not installed is named and left out.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

from scaseg import SelectiveContext


def own():
    """In a module of one's own: channels in, as many channels out; a ReLU after it, as it ends
    with a sum.
    """
    return nn.Sequential(
        nn.Conv2d(3, 32, 8, stride=8),
        nn.ReLU(),
        SelectiveContext(32),
        nn.ReLU(),
        nn.Conv2d(32, 3, 1),
        nn.Upsample(scale_factor=8, mode="bilinear"),
    )


def smp():
    """In a decoder of segmentation_models_pytorch: on the encoder's deepest map."""
    import segmentation_models_pytorch

    class WithContext(nn.Module):
        def __init__(self, decoder, channels):
            super().__init__()
            self.decoder, self.context = decoder, SelectiveContext(channels)

        def forward(self, features):
            *finer, deepest = features
            return self.decoder([*finer, torch.relu(self.context(deepest))])

    model = segmentation_models_pytorch.Unet("resnet18", encoder_weights=None, classes=3)
    model.decoder = WithContext(model.decoder, model.encoder.out_channels[-1])
    return model


def torchvision():
    """In torchvision's DeepLab head: in the place of its ASPP."""
    from torchvision.models.segmentation import deeplabv3_resnet50

    model = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=3)
    model.classifier[0] = nn.Sequential(
        nn.Conv2d(2048, 256, 1, bias=False),
        nn.BatchNorm2d(256),
        nn.ReLU(),
        SelectiveContext(256),
        nn.ReLU(),
    )
    return model


def segformer():
    """In Hugging Face's SegFormer: between the fused levels and the classifier of its head."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(depths=[1] * 4, decoder_hidden_size=64, num_labels=3)
    model = SegformerForSemanticSegmentation(config)
    head = model.decode_head
    head.classifier = nn.Sequential(SelectiveContext(64), nn.ReLU(), head.classifier)
    return model


def mmseg():
    """In a head of mmsegmentation: registered, so that a config can name it."""
    from mmseg.models.decode_heads import FCNHead
    from mmseg.registry import MODELS

    @MODELS.register_module(force=True)
    class SelectiveContextHead(FCNHead):
        def __init__(self, **options):
            super().__init__(**options)
            self.context = SelectiveContext(self.channels)

        def _forward_feature(self, inputs):
            return torch.relu(self.context(super()._forward_feature(inputs)))

    head = MODELS.build(
        {
            "type": "SelectiveContextHead",
            "in_channels": 32,
            "channels": 16,
            "num_convs": 1,
            "concat_input": False,
            "num_classes": 3,
            "norm_cfg": {"type": "BN"},
        }
    )

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = nn.Conv2d(3, 32, 8, stride=8), head

        def forward(self, images):
            return self.head([torch.relu(self.backbone(images))])

    return Network()


def learn(model, steps=8):
    """Train on one batch; return the loss before and after."""
    images, labels = torch.rand(2, 3, 64, 64), torch.randint(0, 3, (2, 8, 8))
    labels = labels.repeat_interleave(8, 1).repeat_interleave(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(steps):
        found = model(images)
        scores = found.logits if hasattr(found, "logits") else found
        scores = scores["out"] if isinstance(scores, dict) else scores
        scores = F.interpolate(scores, size=(64, 64), mode="bilinear")
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        losses.append(float(loss.detach()))
        for name, weight in model.named_parameters():
            if "context" in name:
                assert weight.grad is not None, name
        optimizer.step()
    assert losses[-1] < losses[0], losses
    return losses[0], losses[-1]


if __name__ == "__main__":
    torch.manual_seed(0)
    for build in (own, smp, torchvision, segformer, mmseg):
        if sys.argv[1:] and build.__name__ not in sys.argv[1:]:
            continue
        try:
            network = build()
        except (ImportError, RuntimeError) as fault:
            print(f"{build.__name__}: left out, {type(fault).__name__}: {str(fault)[:100]}")
            continue
        first, last = learn(network)
        print(f"{build.__name__}: loss {first:.3f} -> {last:.3f}")
