"""Policies as ONNX graphs: observation in; action and monitor out.

A graph with several experts takes the expert that acts in the episode, or -1 at its start, and returns the expert that
acts now, so that a loop feeds back what it got.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from samba_rl.errors import UserError, did_you_mean
from samba_rl.export.description import Acts, Description, Floats, Layer, Monitor, Output
from samba_rl.export.reading import content, damaged

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPSET, IR = 17, 8
"""Versions of the operators and of the file format; runtimes from 2022 on read them."""
OBSERVATION, ACTION, MONITOR = "observation", "action", "monitor"
EXPERT, ACTING = "expert", "acting"
"""Further input and output of a policy of several experts: the expert that acts [B] (int64)."""


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise UserError("ONNX files need the package 'onnx'; install it with: pip install 'samba-rl[onnx]'") from error
    return onnx


class _Graph:
    """Nodes and constants of a graph under construction, in float32."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Floats | list[int]) -> str:
        """Add a constant, and return its name."""
        kind = np.int64 if isinstance(value, list) else np.float32
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: int | list[int]) -> str:
        """Add a node, and return the name of its output."""
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], name=f"make_{output}", **attributes))
        return output


def encode(policy: Description, stem: str) -> bytes:
    """Return the content of an ONNX file whose graph has the name `stem`."""
    onnx = _onnx()
    graph, real = _Graph(onnx), onnx.TensorProto.FLOAT
    _add_action(graph, policy)
    values = onnx.helper.make_tensor_value_info
    inputs = [values(OBSERVATION, real, ["batch", len(policy.observations)])]
    outputs = [values(ACTION, real, ["batch", len(policy.actions)])]
    if policy.monitor is not None:
        _add_monitor(graph, policy.monitor)
        outputs.append(values(MONITOR, real, ["batch"]))
    if policy.gate:
        inputs.append(values(EXPERT, onnx.TensorProto.INT64, ["batch"]))
        outputs.append(values(ACTING, onnx.TensorProto.INT64, ["batch"]))
    made = onnx.helper.make_graph(graph.nodes, stem, inputs, outputs, graph.constants)
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR)
    about = {
        "observations": policy.observations,
        "actions": policy.actions,
        "dt": policy.dt,
        "provenance": dict(policy.provenance),
    }
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in about.items()})
    model.producer_name = "samba_rl"
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _add_action(graph: _Graph, policy: Description) -> None:
    """Add normalisation, network, squash and bounds."""
    half = (policy.high - policy.low) / 2
    x = graph.node("Sub", [OBSERVATION, graph.constant("centre", policy.centre)], "centred")
    x = graph.node("Div", [x, graph.constant("scale", policy.scale)], "normalised")
    if policy.gate:
        columns = graph.constant("columns", np.eye(policy.experts))
        columns = graph.node("Gather", [columns, _add_choice(graph, policy, x)], "expert_columns", axis=0)
        x = graph.node("Concat", [x, columns], "noted", axis=1)
    x = _add_network(graph, policy.layers, x, "")
    if policy.squash is not None:
        bound = graph.constant("squash", np.array(policy.squash))
        x = graph.node("Div", [x, bound], "mean_in_squash")
        x = graph.node("Mul", [graph.node("Tanh", [x], "squashed"), bound], "mean")
    x = graph.node("Mul", [x, graph.constant("half_width", half)], "push")
    x = graph.node("Add", [x, graph.constant("middle", policy.low + half)], "wanted")
    low, high = _inwards(policy.low, np.inf), _inwards(policy.high, -np.inf)
    x = graph.node("Max", [x, graph.constant("low", low)], "above_low")
    graph.node("Min", [x, graph.constant("high", high)], ACTION)


def _add_network(graph: _Graph, layers: tuple[Layer, ...], x: str, prefix: str) -> str:
    """Add layers with a tanh after each but the last; return the name of the result."""
    for i, (weight, bias) in enumerate(layers):
        parts = [x, graph.constant(f"{prefix}weight{i}", weight), graph.constant(f"{prefix}bias{i}", bias)]
        x = graph.node("Gemm", parts, f"{prefix}layer{i}", transB=1)
        if i < len(layers) - 1:
            x = graph.node("Tanh", [x], f"{prefix}hidden{i}")
    return x


def _add_choice(graph: _Graph, policy: Description, x: str) -> str:
    """Add the expert that acts: the one that is given, or where it is negative, the one that the gate chooses."""
    ratings = _add_network(graph, policy.gate, x, "gate_")
    best = graph.node("ArgMax", [ratings], "best", axis=1, keepdims=0)
    begins = graph.node("Less", [EXPERT, graph.constant("zero", [0])], "begins")
    return graph.node("Where", [begins, best, EXPERT], ACTING)


def _inwards(bound: Floats, towards: float) -> Floats:
    """Return bounds as float32 numbers that lie within them."""
    single = bound.astype(np.float32)
    outside = single < bound if towards > 0 else single > bound
    return np.where(outside, np.nextafter(single, np.float32(towards)), single).astype(np.float64)


def _add_monitor(graph: _Graph, monitor: Monitor) -> None:
    """Add the distance to the nearest representative observation."""
    points = monitor.points[None]
    x = graph.node("Unsqueeze", [OBSERVATION, graph.constant("middle_axis", [1])], "one_row")
    x = graph.node("Sub", [x, graph.constant("points", points)], "differences")
    x = graph.node("Div", [x, graph.constant("spread", monitor.scale)], "scaled")
    x = graph.node("Mul", [x, x], "squares")
    x = graph.node("ReduceSum", [x, graph.constant("last_axis", [2])], "squared_distances", keepdims=0)
    x = graph.node("ReduceMin", [x], "nearest", axes=[1], keepdims=0)
    x = graph.node("Sqrt", [x], "distance")
    graph.node("Div", [x, graph.constant("radius", np.array(monitor.radius))], MONITOR)


def load(path: Path) -> Acts:
    """Read an ONNX file; the result evaluates it with the interpreter of the package `onnx`."""
    onnx = _onnx()
    packed = content(path)
    try:
        model = onnx.load_model_from_string(packed)
        onnx.checker.check_model(model)
        inputs, outputs = ([value.name for value in group] for group in (model.graph.input, model.graph.output))
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(model)
    except Exception as error:
        # Protobuf, the checker and the interpreter each have errors of their own.
        raise damaged(path, str(error).splitlines()[0] if str(error) else error) from error
    if OBSERVATION not in inputs or ACTION not in outputs:
        name, there = (OBSERVATION, inputs) if OBSERVATION not in inputs else (ACTION, outputs)
        raise UserError(
            f"{path} has no {'in' if name == OBSERVATION else 'out'}put '{name}'; {did_you_mean(name, there)}"
        )
    several = EXPERT in inputs and ACTING in outputs
    wanted = [name for name in (ACTION, MONITOR, ACTING) if name in outputs]

    def run(observations: Floats, expert: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        given = {OBSERVATION: observations.astype(np.float32), **({EXPERT: expert} if several else {})}
        try:
            return dict(zip(wanted, map(np.asarray, evaluator.run(wanted, given)), strict=True))
        except Exception as error:
            raise damaged(path, error) from error

    def evaluate(observations: Floats, first: Floats | None = None) -> Output:
        expert = np.full(len(observations), -1)
        if several and first is not None:
            expert = run(first, expert)[ACTING].astype(np.int64)
        found = run(observations, expert)
        monitor = found[MONITOR].astype(np.float64) if MONITOR in found else None
        return Output(found[ACTION].astype(np.float64), monitor, found[ACTING].astype(np.int64) if several else None)

    return evaluate
