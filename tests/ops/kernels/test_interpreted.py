"""The kernels against the reference, by Triton's interpreter: no GPU needed."""

import pytest
import torch

from scaseg import SelectiveContext, selective_context
from scaseg.errors import UserError
from scaseg.ops.kernels import support, tiles
from tests.nn.blocks import make
from tests.ops.cases import NAMES, outputs_and_grads, random_case, relative_error
from tests.ops.kernels.cases import KINDS, check_block, check_operator

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tests/gpu runs the same kernels on the GPU"
)


@pytest.mark.parametrize("activation", support.CODES)
@pytest.mark.parametrize("n", [1, 2, 63])
def test_small_and_odd_sizes(activation, n):
    check_operator("cpu", activation, n)


@pytest.mark.parametrize("activation", support.CODES)
def test_everything_at_once(activation):
    """Several tiles, images, pair channels and features that fill no tile, and a mask."""
    channels = 1 if activation == "relu" else 2
    check_operator("cpu", activation, 67, batch=2, channels=channels, features=19, masked=True)


@pytest.mark.parametrize("activation", support.CODES)
def test_sources_elsewhere(activation):
    check_operator("cpu", activation, 67, targets=5, masked=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype):
    check_operator("cpu", "sigmoid", 97, dtype, features=9)


def test_tables_in_two_planes(monkeypatch):
    """What bfloat16 does on a GPU, where the interpreter has no such products: here in float16."""
    from scaseg.ops.kernels.plan import plan_of

    monkeypatch.setattr(tiles, "is_split", lambda dtype, device: dtype == torch.float16)
    plan_of.cache_clear()
    try:
        check_operator("cpu", "sigmoid", 97, torch.float16, features=19, masked=True)
        check_operator("cpu", "exp", 67, torch.float16, channels=2)
        check_operator("cpu", "identity", 67, torch.float16, masked=True)
        check_operator("cpu", "relu", 67, torch.float16, masked=True)
    finally:
        plan_of.cache_clear()


@pytest.mark.parametrize("bound", [0.5, 9.5])
def test_other_bounds(bound):
    check_operator("cpu", "sigmoid", 61, bound=bound, scale=bound)


def test_a_dominant_source():
    """The own entry of the strongest source is most of its row: nothing may cancel there."""
    check_operator("cpu", "exp", 20, scale=12.0, bound=40.0)


def far_apart(case):
    case.target_score.add_(1000), case.source_score.sub_(1000)


def one_outlier(case):
    case.source_score[0, 7] = 1e6


def rows_that_nearly_vanish(case):
    """Sums of identities cross zero, where the guard acts; relus of 1e-5 are all there is."""
    mean, largest = case.source_score.mean(), case.source_score.max()
    case.target_score[0, :20] = -mean + torch.linspace(-1e-3, 1e-3, 20)
    case.target_score[0, 20:40] = 1e-5 - largest


@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("change", [far_apart, one_outlier, rows_that_nearly_vanish])
def test_hard_rows_of_exact_forms(activation, change):
    """They lose no more than the PyTorch form, whose sums of scores are float64."""
    case = random_case(150, activation=activation, dtype=torch.float32)
    change(case)
    exact = outputs_and_grads(case.to(torch.float64), "dense")
    linear, found = (outputs_and_grads(case, backend) for backend in ("linear", "triton"))
    for name in NAMES[:-1]:
        allowed = 4 * relative_error(linear[name], exact[name]) + 1e-5
        assert relative_error(found[name], exact[name]) <= allowed, name


def test_several_features_to_a_tile_and_chunks_of_sources():
    check_operator("cpu", "sigmoid", 263, features=150)


def test_one_mask_for_all_images():
    """A mask that is expanded has no memory for the second image."""
    block, x = make("sca"), torch.randn(2, 6, 5, 6)
    mask = (torch.rand(1, 5, 6) < 0.5).expand(2, -1, -1)
    results = []
    for backend in ("dense", "triton"):
        block.backend = backend
        results.append(block(x, mask=mask))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", support.CODES)
def test_nothing_but_masked_sources_gives_zeros(activation):
    values, score = torch.full((1, 70, 3), torch.nan), torch.zeros(1, 70, requires_grad=True)
    mask = torch.zeros(1, 70, dtype=torch.bool)
    options = {"activation": activation, "score_bound": 5.0, "backend": "triton"}
    options["source_mask"] = mask
    context = selective_context(values, score, score, **options)
    assert torch.equal(context, torch.zeros(1, 70, 3))
    (grad,) = torch.autograd.grad(context.sum(), score)
    assert torch.equal(grad, torch.zeros(1, 70))


def test_buffers_full_of_nan(monkeypatch):
    """Every element that is read was written: new memory may hold anything."""
    for name in ("new_empty", "empty", "empty_like"):
        owner = torch.Tensor if name == "new_empty" else torch
        allocate = getattr(owner, name)

        def filled(*args, allocate=allocate, **options):
            out = allocate(*args, **options)
            return out.fill_(torch.nan) if out.is_floating_point() else out

        monkeypatch.setattr(owner, name, filled)
    check_operator("cpu", "sigmoid", 70, channels=3, masked=True)
    for name in ("sca", "sca, relu", "sca, identity"):
        check_block("cpu", name, masked=True)


@pytest.mark.parametrize("name", KINDS)
def test_blocks(name):
    check_block("cpu", name, masked=name in ("sca, softplus", "sca, relu"))


def test_a_result_may_be_changed_in_place():
    """As the ReLU after the paper's block does: no view may leave a step of autograd."""
    x = torch.randn(1, 6, 3, 4, requires_grad=True)
    block = make("sca", backend="triton")
    (found,) = torch.autograd.grad(block(x).relu_().sum(), x)
    (expected,) = torch.autograd.grad(block(x).relu().sum(), x)
    torch.testing.assert_close(found, expected)


def test_a_deeper_block():
    check_block("cpu", "sca", layers=1, hidden=20, out_channels=5)


@pytest.mark.parametrize(("name", "stretch"), [("sca", 40), ("sca", 130), ("sca, relu", 40)])
def test_large_maps_in_stretches(monkeypatch, name, stretch):
    """Parts of an image, or several images at once, with features that are computed again."""
    from scaseg.ops.kernels import block

    monkeypatch.setattr(block, "WHOLE", 50)
    monkeypatch.setattr(block, "STRETCH", stretch)
    monkeypatch.setattr(block, "JOINED", 50)
    check_block("cpu", name, size=(7, 9), masked=True, layers=3)


def test_what_somebody_changed_is_called_as_it_is():
    """A subclass with its own context, and a layer that is watched, are not passed over."""

    class Own(SelectiveContext):
        def target_context(self, x, source, source_mask):
            return torch.ones(len(x), 1, self.out_channels)

    own = Own(6, hidden=8, backend="triton")
    x = torch.randn(1, 6, 3, 4)
    assert torch.equal(own(x), own.identity(x) + 1)
    seen, watched = [], make("sca", backend="triton")
    watched.identity.register_forward_hook(lambda *call: seen.append(call))
    watched(x)
    assert len(seen) == 1


def test_scores_beyond_the_promise_are_at_its_end():
    """As in the linear form on a GPU, where nobody can look; with no gradient there."""
    values, score = torch.randn(1, 40, 3), torch.full((1, 40), 0.5)
    beyond = score.clone()
    beyond[0, 3] = 9.0
    beyond.requires_grad_()
    from scaseg.ops.kernels.operator import kernel_context

    options = {"activation": "sigmoid", "channel_weight": None, "exclude_self": True}
    options |= {"source_mask": None, "score_bound": 2.0}
    found = kernel_context(values, beyond, beyond, **options)
    at_the_end = beyond.detach().clamp(-2, 2)
    expected = selective_context(values, at_the_end, at_the_end, score_bound=2.0, backend="linear")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    (grad,) = torch.autograd.grad(found.square().sum(), beyond)
    assert grad[0, 3] == 0
    assert (grad[0, :3] != 0).all()


@pytest.mark.parametrize("activation", ["sigmoid", "identity", "relu"])
def test_a_nan_score_stays_visible(activation):
    values, score = torch.randn(1, 40, 3), torch.rand(1, 40)
    bad = score.clone()
    bad[0, 5] = torch.nan
    options = {"activation": activation, "score_bound": 5.0, "backend": "triton"}
    context = selective_context(values, bad, score, **options)
    assert context[0, 5].isnan().all()
    assert context[0, :5].isfinite().all()
    context = selective_context(values, score, bad, **options)
    assert context.isnan().all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"activation": "relu", "pair_channels": 3}, "no kernel for relu and 3 pair channels"),
        ({"score_bound": None}, "sigmoid needs a score_bound of at most 9.5, not None"),
        ({"score_bound": 20.0}, "at most 9.5, not 20.0"),
    ],
)
def test_a_named_backend_runs_or_says_why_not(options, reason):
    options = {"score_bound": 5.0, **options}
    score = torch.zeros(1, 4, options.pop("pair_channels", 1))
    with pytest.raises(UserError, match=reason):
        selective_context(torch.ones(1, 4, 2), score, score, backend="triton", **options)
    wide = torch.zeros(1, 4, dtype=torch.float64)
    with pytest.raises(UserError, match=r"no kernel for torch.float64"):
        selective_context(wide.unsqueeze(-1), wide, wide, score_bound=5.0, backend="triton")


def test_without_a_gpu_they_say_so(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    assert support.unsupported("cpu", torch.float32, "exp", None, 1) == (
        "they run on CUDA, not on cpu"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["sca", "sca, exp", "sca, relu", "sca, identity"])
def test_compiled_whole(name):
    """The kernels are one operation to the compiler, forward and backward."""
    from scaseg.ops.kernels import plan

    torch._dynamo.reset()
    plan.node_table.cache_clear()  # made while tracing, not in the memory of a CUDA graph
    made = make(name, backend="triton")
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    x = torch.randn(1, 6, 5, 6, requires_grad=True)
    found, expected = compiled(x), made(x)
    torch.testing.assert_close(found, expected)
    leaves, grad = [x, *made.parameters()], torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, grad), torch.autograd.grad(expected, leaves, grad)
    )


def test_differentiable_once():
    """To leave a second derivative out without a word would be wrong."""
    x = torch.randn(1, 6, 3, 4, requires_grad=True)
    out = make("sca", backend="triton")(x)
    with pytest.raises(UserError, match=r'cannot be differentiated again .* use "linear"'):
        torch.autograd.grad(out.sum(), x, create_graph=True)
