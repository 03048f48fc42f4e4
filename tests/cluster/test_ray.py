"""One sweep over a cluster of real nodes, one of which is killed in the middle."""

import threading

import pytest
from sweeps import BLOCKS, Told, journals, profile, tuning
from worker_tasks import HELLO, candidate, task

pytest.importorskip("ray")

from attnctl.cluster import nodes
from attnctl.cluster.executor import RayCluster
from attnctl.cluster.pool import RayPool
from attnctl.errors import Unavailable
from attnctl.gpu.deadlines import Deadlines
from attnctl.tune.journal import read
from attnctl.tune.outcome import Status
from attnctl_kernels.contract import Outcome

SPACE = BLOCKS.replace("block_q: [16, 64]", "block_q: [16, 32, 64, 128]")


@pytest.fixture(scope="module")
def cluster(two_nodes):
    return RayCluster(two_nodes[0].address)


def test_compile_workers_of_the_cluster(cluster):
    """What a compiler does is a result; what was cancelled is over; the pool goes on. One core each is a device's."""
    starts = nodes.compilers("/unused", None)
    assert len(starts) == 2
    with RayPool(starts[:1], HELLO, Deadlines(compile=4)) as pool:
        faults = ["none", "compile_error", "compile_abort"]
        results = [each.result(120) for each in [pool.submit(task(), candidate(fault)) for fault in faults]]
        assert [each.outcome for each in results] == [Outcome.OK, Outcome.COMPILE_ERROR, Outcome.WORKER_DIED]
        left = [pool.submit(task(), candidate("compile_hang")) for _ in range(2)]
        pool.cancel()
        assert all(each.cancelled() or _waits(each) for each in left)
        assert pool.submit(task(), candidate("none")).result(120).outcome is Outcome.OK


def _waits(future):
    try:
        future.result(60)
    except BaseException as error:  # noqa: BLE001 - cancelled, on another thread
        return "Cancelled" in type(error).__name__
    return False


class KillsNode(Told):
    """Takes a node away, without a word to it, when some candidates are done."""

    def __init__(self, cluster, node):
        super().__init__()
        self.cluster, self.node = cluster, node

    def outcome(self, candidate, result, note=""):
        super().outcome(candidate, result, note)
        if len(self.outcomes) == 4:
            threading.Thread(
                target=self.cluster.remove_node, args=(self.node,), kwargs={"allow_graceful": False}
            ).start()


def test_a_node_that_dies_costs_what_was_running_there(two_nodes, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = profile(tmp_path, SPACE)
    told = KillsNode(*two_nodes)
    it = tuning(path, told, cluster=cluster, deadlines=Deadlines())
    it.run()
    (result,) = it.results
    assert result.status in {Status.WON, Status.TIE, Status.KEPT}
    assert {each.result.outcome for each in result.outcomes} == {Outcome.OK}
    assert len(result.outcomes) == len(result.space.candidates)
    assert any("going on with 1 devices" in message for message in told.messages)
    (journal,) = journals(tmp_path)  # on the driver, of the model, not of a device
    recorded = read(journal)
    assert len({each.device for each in recorded.outcomes.values()}) == 2
    assert recorded.header.environment.uuid.startswith("ray-cpu_")
    assert result.written == tmp_path / "tuned" / recorded.header.environment.device_name / "p.yaml"


def test_gpus_that_are_not_there(cluster):
    with pytest.raises(Unavailable, match="the Ray cluster has no GPU"):
        nodes.slots(gpu=True)
