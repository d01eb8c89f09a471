"""Dataclasses that describe a model and a run. They say what to build; build alone builds it."""

from scaseg.config.model import IMAGENET_MEAN as IMAGENET_MEAN
from scaseg.config.model import IMAGENET_STD as IMAGENET_STD
from scaseg.config.model import ModelConfig as ModelConfig
from scaseg.config.recipe import describe as describe
from scaseg.config.recipe import load_recipe as load_recipe
from scaseg.config.recipe import save_recipe as save_recipe
from scaseg.config.run import AugmentConfig as AugmentConfig
from scaseg.config.run import DataConfig as DataConfig
from scaseg.config.run import MachineConfig as MachineConfig
from scaseg.config.run import NetworkConfig as NetworkConfig
from scaseg.config.run import RunConfig as RunConfig
from scaseg.config.run import TrainingConfig as TrainingConfig
