"""Why a pixel got its class: what each neuron depends on, drawn, compared and tested."""

from scaseg.explain.comparing import Comparison as Comparison
from scaseg.explain.comparing import compare_models as compare_models
from scaseg.explain.comparing import most_telling as most_telling
from scaseg.explain.drawing import draw_dependency_maps as draw_dependency_maps
from scaseg.explain.geometry import NeuronGrid as NeuronGrid
from scaseg.explain.maps import DependencyMaps as DependencyMaps
from scaseg.explain.maps import class_maps as class_maps
from scaseg.explain.maps import dependency_maps as dependency_maps
from scaseg.explain.maps import grid_points as grid_points
from scaseg.explain.occluding import Occlusion as Occlusion
from scaseg.explain.occluding import occlusion as occlusion
from scaseg.explain.page import draw_comparisons as draw_comparisons
from scaseg.explain.saving import save_figure as save_figure
from scaseg.explain.saving import save_maps as save_maps
from scaseg.explain.selecting import Selectivity as Selectivity
from scaseg.explain.selecting import selectivity as selectivity
