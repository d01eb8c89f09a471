"""A Ray cluster of several nodes on this machine, which tests add, and kill."""

import os

import pytest

MEMORY = 80_000_000  # bytes of Ray's object store on each node: only names pass through it


@pytest.fixture(scope="session")
def ray_cluster():
    """A head without workers; skipped where Ray cannot start."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'scaseg[ray]'")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    # a dead node is missed after 4 seconds, not 30
    checks = {"health_check_period_ms": 1000, "health_check_failure_threshold": 4}
    options["_system_config"] = checks
    try:
        made = Cluster(initialize_head=True, head_node_args=options)
    except Exception as error:
        pytest.skip(f"Ray cannot start here: {error}")
    yield made
    made.shutdown()


def add_node(cluster, **resources):
    """Start a node, and wait for it; skipped where it does not come."""
    try:
        return cluster.add_node(object_store_memory=MEMORY, **resources)
    except Exception as error:
        pytest.skip(f"Ray cannot start a node here: {error}")


def remove_node(cluster, node):
    """Kill a node, if it is there, with all that runs on it."""
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)
