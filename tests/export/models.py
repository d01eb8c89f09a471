"""Small networks to export: every part is there, and tracing takes seconds."""

import scaseg

CLASSES = ("sky", "tree", "road")


def small_model(context="sca", **options):
    """A network of a few layers; options go to the context. Scores vary."""
    options = {"hidden": 8, **options} if context == "sca" else options
    model = scaseg.create_model("tiny", context, "pointwise", classes=CLASSES, **options).eval()
    for layer in (model.head.fc6, model.head.fc7, model.head.score):
        layer.weight.data.normal_(std=2 / layer.in_channels**0.5)
    if context == "sca":
        model.context.predictor.score.weight.data.normal_(std=0.5)
    return model
