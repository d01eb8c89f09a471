"""Most of the time goes into compiling kernels: `make test-gpu` runs eight processes."""

import os

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Leave the share of this process: SHARD=3/8 is the fourth of eight."""
    part, parts = map(int, os.environ.get("SHARD", "0/1").split("/"))
    items[:] = items[part::parts]
