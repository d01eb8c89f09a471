"""Backbones: an image in, a feature map at 1/8 of its size out."""

from scaseg.models.backbones.mobilenet_v2 import MobileNetV2 as MobileNetV2
from scaseg.models.backbones.tiny import Tiny as Tiny
from scaseg.models.backbones.vgg16 import Vgg16 as Vgg16
