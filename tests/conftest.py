import os

import pytest
import torch

from tests.clusters import ray_cluster  # noqa: F401

os.environ["SCASEG_CACHE"] = ""  # tests, and what they start, remember nothing in anybody's home

if (
    not torch.cuda.is_available()
):  # Triton's kernels run in its interpreter; before any import of it
    os.environ.setdefault("TRITON_INTERPRET", "1")

try:  # a machine lent for its GPU may not have them, and those tests do not use them
    # finds the machine's fonts, once for all; in a test that takes 5 s it would say so on stderr
    import matplotlib.font_manager  # noqa: F401
    from hypothesis import HealthCheck, settings
except ImportError:
    pass
else:
    settings.register_profile(
        "repeatable",
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("repeatable")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA device; run with `make test-gpu`")


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)
