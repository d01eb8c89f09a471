"""torch.func, activation checkpointing and FSDP around a block and a network."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import scaseg
from tests.nn.blocks import BLOCKS, make

SIDES = {"dense": (5, 6), "past the size at which it is linear": (24, 30)}


def block(**options):
    torch.manual_seed(0)
    made = scaseg.SelectiveContext(6, hidden=5, **options)
    nn.init.normal_(made.predictor.score.weight)  # far from the plain average
    return made


OPTIONS = [
    {},
    {"score_bound": None},
    {"activation": "softplus"},
    {"activation": "exp"},
    {"activation": "relu"},
    {"activation": "identity"},
    {"pair_channels": 3},
]


@pytest.mark.parametrize("size", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_of_each_image_by_vmap(options, size):
    """vmap of grad: what a loop over the images gives."""
    module, images = block(**options), torch.randn(3, 6, *size)
    weights = dict(module.named_parameters())

    def loss(weights, image):
        return torch.func.functional_call(module, weights, (image.unsqueeze(0),)).square().mean()

    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, images)
    for index, image in enumerate(images):
        alone = torch.func.grad(loss)(weights, image)
        for name in weights:
            expected = alone[name]
            torch.testing.assert_close(together[name][index], expected, rtol=2e-3, atol=2e-5)


def test_an_ensemble_by_vmap():
    """Several sets of weights at once: vmap over parameters."""
    blocks = [block(score_std=std) for std in (0.1, 0.3)]
    weights, buffers = torch.func.stack_module_state(blocks)
    images = torch.randn(2, 6, 7, 8)
    found = torch.func.vmap(lambda w, b: torch.func.functional_call(blocks[0], (w, b), (images,)))(
        weights, buffers
    )
    for own, one in zip(found, blocks, strict=True):
        torch.testing.assert_close(own, one(images), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which jvp imports
def test_forward_mode_is_the_derivative():
    module, x = block().double(), torch.randn(1, 6, 5, 6, dtype=torch.float64)
    direction = torch.randn_like(x)
    _, slope = torch.func.jvp(module, (x,), (direction,))
    difference = (module(x + 1e-6 * direction) - module(x - 1e-6 * direction)) / 2e-6
    torch.testing.assert_close(slope, difference, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", BLOCKS)
def test_gradients_of_gradients(name):
    """What autograd.grad gives along a direction is the difference of two first gradients."""
    torch.manual_seed(0)
    module = make(name).double()
    x = torch.randn(1, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    direction = torch.randn_like(x)

    def slope(x, **options):
        return torch.autograd.grad(module(x).square().sum(), x, **options)[0]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        (found,) = torch.autograd.grad((slope(x, create_graph=True) * direction).sum(), x)
        step = 1e-6 * direction
        expected = (slope(x + step) - slope(x - step)) / 2e-6
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sca", "average", "dot"])
def test_hooks_see_what_a_layer_gives(name):
    """Forward and backward, on the layers or on all modules: the block overwrites nothing then."""
    module, x = make(name), torch.randn(1, 6, 4, 5, requires_grad=True)
    for layer in module.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
    expected = module(x)
    identity, seen = module.identity(x), {}
    everywhere = nn.modules.module
    hooks = [
        (module.identity.register_forward_hook, module.identity.register_full_backward_hook),
        (everywhere.register_module_forward_hook, everywhere.register_module_full_backward_hook),
    ]
    for forward, backward in hooks:
        seen.clear()
        handles = [
            forward(lambda layer, _, out: seen.update({layer: out})),
            backward(lambda layer, _, grad: seen.update({(layer, "grad"): grad[0]})),
        ]
        try:
            module(x).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        torch.testing.assert_close(seen[module.identity], identity)
        torch.testing.assert_close(seen[module.identity, "grad"], torch.ones_like(identity))
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("size", SIDES.values(), ids=SIDES)
def test_checkpointing_changes_nothing(size):
    module, x = block(), torch.randn(2, 6, *size)

    def gradients(run):
        module.zero_grad()
        run(x).square().sum().backward()
        return [weight.grad.clone() for weight in module.parameters()]

    plain = gradients(module)
    again = gradients(lambda x: checkpoint(module, x, use_reentrant=False))
    for one, other in zip(plain, again, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore")  # of torch.distributed, about a CPU
def test_fully_sharded():
    """FSDP's second version, on a CPU by gloo; one process here, two in docs/networks.md."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = scaseg.create_model("tiny", "sca", "pointwise", classes=3, hidden=8).eval()
    images = torch.randn(2, 3, 32, 40)
    expected = model(images)
    expected.square().mean().backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for part in (model.backbone, model.context, model.head, model):
            fully_shard(part, mesh=mesh)
        found = model(images)
        found.square().mean().backward()
        assert torch.equal(found, expected)
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.grad.full_tensor(), gradients[name])
    finally:
        distributed.destroy_process_group()


def test_symbolic_tracing_with_the_block_as_a_leaf():
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, scaseg.SelectiveContext) or super().is_leaf_module(
                module, name
            )

    network = nn.Sequential(nn.Conv2d(3, 6, 1), block())
    traced = torch.fx.GraphModule(network, Tracer().trace(network))
    images = torch.randn(2, 3, 5, 7)
    assert torch.equal(traced(images), network(images))
