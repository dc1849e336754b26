"""The recorder: calls that come again are repeated from recordings, with new tensors and the same random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Generator, Tensor, nn

from samba_rl.capture import CudaGraphs, Recorder, side_by_side
from tests.capture.fakes import FakeGraphs
from tests.traces import seeded

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@dataclass(frozen=True)
class Pair:
    a: Tensor
    factor: float
    rest: tuple[Tensor, ...] = ()


class Both(NamedTuple):
    total: Tensor
    noise: Tensor


def both(pair: Pair, layer: nn.Linear, generator: Generator) -> Both:
    total = pair.a * pair.factor + sum(pair.rest, torch.zeros(()))
    return Both(layer(total), torch.randn(3, generator=generator, device=generator.device))


def test_on_a_cpu_functions_are_just_called() -> None:
    recorder, total = Recorder(CPU), torch.zeros(())
    assert not recorder.records
    assert float(recorder(total.add_, 5, times=3)) == 15


def test_recordings_give_what_plain_calls_give() -> None:
    graphs, layer = FakeGraphs(), nn.Linear(2, 2)
    recorder, plain, repeated = Recorder(CPU, graphs), seeded(3), seeded(3)
    for i in range(5):
        with torch.no_grad():
            layer.weight.fill_(float(i))  # a module's tensors are inputs like all others
        pair = Pair(torch.full((4, 2), 1.0 + i), 2.0, (torch.ones(2),))
        expected = both(pair, layer, plain)
        found = recorder(both, pair, layer, generator=repeated)
        assert isinstance(found, Both)
        assert torch.equal(found.total, expected.total) and torch.equal(found.noise, expected.noise)
    assert (graphs.watched, graphs.recorded, graphs.replayed) == (1, 1, 4)
    assert torch.equal(plain.get_state(), repeated.get_state())


def test_results_are_not_overwritten_by_later_repetitions() -> None:
    recorder = Recorder(CPU, FakeGraphs())
    first, second, third = (recorder(torch.neg, torch.tensor([float(i)])) for i in range(3))
    assert [float(each) for each in (first, second, third)] == [0, -1, -2]


def test_other_shapes_and_constants_are_other_recordings() -> None:
    graphs = FakeGraphs()
    recorder = Recorder(CPU, graphs)
    for _ in range(3):
        for shape, factor in ((2, 1.0), (3, 1.0), (2, 5.0)):
            pair = Pair(torch.ones(shape), factor)
            assert torch.equal(recorder(lambda_free, pair), factor * torch.ones(shape))
    assert graphs.recorded == 3


def lambda_free(pair: Pair) -> Tensor:
    return pair.a * pair.factor


def test_a_call_can_come_many_times_in_a_row() -> None:
    total = torch.zeros(2)
    graphs = FakeGraphs(lambda: [total])
    recorder = Recorder(CPU, graphs)
    assert torch.equal(recorder(total.add_, torch.ones(2), times=10), torch.full((2,), 10.0))
    assert (graphs.watched, graphs.replayed) == (1, 9)
    recorder(total.add_, torch.full((2,), 3.0), times=2)
    assert torch.equal(total, torch.full((2,), 16.0))


@pytest.mark.parametrize(
    "graphs", [FakeGraphs(problem="the host waits in here.py:3"), FakeGraphs(broken=True)], ids=["waits", "broken"]
)
def test_what_cannot_be_recorded_is_called_as_usual(graphs: FakeGraphs) -> None:
    recorder, total = Recorder(CPU, graphs), torch.zeros(())
    for i in range(4):
        assert float(recorder(total.add_, torch.ones(()))) == i + 1
    assert graphs.watched == 1 and graphs.recorded == 0 and len(recorder.refused) == 1


def test_only_the_latest_recordings_are_kept() -> None:
    graphs = FakeGraphs()
    recorder = Recorder(CPU, graphs)
    for _ in range(2):
        for size in (*range(1, 50), 1):
            recorder(torch.neg, torch.zeros(size))
    assert len(recorder._known) == 32


def test_side_by_side_without_a_graph_is_one_after_the_other() -> None:
    made: list[int] = []
    assert side_by_side(lambda: made.append(1), lambda: made.append(2)) == [None, None] and made == [1, 2]


# On a GPU -------------------------------------------------------------------------------------------------------------


@needs_cuda
def test_a_gpu_repeats_recordings_with_the_same_random_numbers() -> None:
    device = torch.device("cuda")
    recorder, layer = Recorder(device), nn.Linear(2, 2).to(device)
    plain, repeated = Generator(device).manual_seed(3), Generator(device).manual_seed(3)
    for i in range(4):
        pair = Pair(torch.full((4, 2), 1.0 + i, device=device), 2.0)
        expected, found = both(pair, layer, plain), recorder(both, pair, layer, generator=repeated)
        assert torch.allclose(found.total, expected.total) and torch.equal(found.noise, expected.noise)
    assert torch.equal(plain.get_state(), repeated.get_state()) and not recorder.refused


@needs_cuda
def test_a_gpu_calls_as_usual_what_makes_the_host_wait() -> None:
    recorder = Recorder(torch.device("cuda"))
    assert [recorder(torch.Tensor.item, torch.ones((), device="cuda")) for _ in range(3)] == [1, 1, 1]
    assert recorder.refused.keys() == {"TensorBase.item"} or len(recorder.refused) == 1


@needs_cuda
def test_a_graph_that_fails_leaves_the_gpu_usable() -> None:
    device = torch.device("cuda")
    graphs = CudaGraphs(device)
    one = torch.ones((), device=device)
    with pytest.raises(RuntimeError):
        graphs.record(lambda: one.item(), None)
    assert float(torch.randn(3, device=device).sum() + one) != 0
    replay, result = graphs.record(lambda: one + 1, None)
    replay()
    assert float(result) == 2
