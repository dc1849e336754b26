"""Captures what functions launch on a GPU as CUDA graphs and replays it, for small kernels that take longer to launch
than to run. On a CPU functions are just called."""

from samba_rl.capture.graphs import CudaGraphs, Graphs, side_by_side
from samba_rl.capture.kernels import kernels
from samba_rl.capture.recorder import Recorder

__all__ = ["CudaGraphs", "Graphs", "Recorder", "kernels", "side_by_side"]
