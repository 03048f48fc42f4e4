"""A Ray cluster of two nodes on this machine, whose CPU stands for a device of each."""

import os
import sys
from pathlib import Path

import pytest

import attnctl_kernels

ROOT = Path(__file__).parents[2]
for folder in ("tune", "worker"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

FAMILIES = ROOT / "tests" / "families"


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """What the nodes' processes inherit: the faulty family, locks of their own, two devices on one machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "kernels")]))
        patch.setenv("ATTNCTL_FAMILY_PATH", str(FAMILIES))
        patch.setattr(attnctl_kernels, "__path__", [*attnctl_kernels.__path__, str(FAMILIES)])
        patch.setenv("ATTNCTL_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        patch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ATTNCTL_CPU_DEVICES", "2")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        yield patch


@pytest.fixture(scope="module")
def two_nodes(surroundings):
    """The cluster, and the node that may be lost."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    try:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        node = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
    except Exception as error:  # noqa: BLE001 - Ray's own, without a type
        pytest.skip(f"Ray's own test cluster does not start here: {error}")
    yield cluster, node
    ray.shutdown()
    cluster.shutdown()
