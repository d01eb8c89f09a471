"""From names to objects: the only place where one becomes the other."""

from scaseg.build.data import DATASETS as DATASETS
from scaseg.build.data import GENERATED as GENERATED
from scaseg.build.data import build_dataset as build_dataset
from scaseg.build.data import build_transforms as build_transforms
from scaseg.build.model import BACKBONES as BACKBONES
from scaseg.build.model import CONTEXTS as CONTEXTS
from scaseg.build.model import USUAL_HEADS as USUAL_HEADS
from scaseg.build.model import build_model as build_model
from scaseg.build.model import check_model as check_model
from scaseg.build.model import create_model as create_model
from scaseg.build.model import load_model as load_model
from scaseg.build.training import build_loggers as build_loggers
from scaseg.build.training import build_loss as build_loss
from scaseg.build.training import build_optimiser as build_optimiser
from scaseg.build.training import check_training as check_training
