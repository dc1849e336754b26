"""ONNX: the graph runs in ONNX Runtime, and files of another kind are explained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from samba_rl import UserError
from samba_rl.export.formats import FORMATS, write
from tests.export.policies import a_policy, observations

onnx = pytest.importorskip("onnx")


def test_a_runtime_gives_the_actions_and_the_monitor_of_the_policy(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    policy = a_policy()
    write(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    x = observations(policy)
    action, monitor = session.run(None, {"observation": x.astype(np.float32)})
    due = policy(x)
    assert action.dtype == np.float32 and action.shape == (len(x), 2) and monitor.shape == (len(x),)
    assert due.monitor is not None
    assert np.abs(action - due.action).max() < 2e-5 and np.abs(monitor / due.monitor - 1).max() < 2e-5
    # Not by a rounding error outside the bounds 0.1 and 0.7 either, which float32 does not have.
    assert (action >= policy.low).all() and (action <= policy.high).all()
    single = session.run(["action"], {"observation": x[:1].astype(np.float32)})[0]
    assert single[0].tolist() == pytest.approx(action[0].tolist(), abs=1e-6)


def test_a_runtime_keeps_the_expert_that_is_fed_back(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    policy = a_policy(experts=3)
    write(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    first, x = observations(policy, 2000), observations(policy, 2000, seed=2)
    expert = np.full(len(first), -1)
    for seen in (first, x, first):
        feed = {"observation": seen.astype(np.float32), "expert": expert}
        action, expert = session.run(["action", "acting"], feed)
        due = policy(seen, first)
        assert due.expert is not None
        same = expert == due.expert
        assert same.mean() > 0.999 and np.abs(action - due.action)[same].max() < 2e-5
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(["action"], {"observation": first[:1].astype(np.float32), "expert": np.array([3])})


def test_the_graph_says_where_it_comes_from(tmp_path: Path) -> None:
    write(a_policy(), tmp_path / "policy.onnx")
    about = {one.key: json.loads(one.value) for one in onnx.load(tmp_path / "policy.onnx").metadata_props}
    assert about["actions"] == ["force", "torque"] and about["provenance"]["limits"] == ["mean at most 1"]


def test_a_graph_without_the_right_names_is_explained(tmp_path: Path) -> None:
    make, real = onnx.helper, onnx.TensorProto.FLOAT
    values = [make.make_tensor_value_info(name, real, [None]) for name in ("state", "force")]
    graph = make.make_graph([make.make_node("Tanh", ["state"], ["force"])], "other", values[:1], values[1:])
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), tmp_path / "p.onnx")
    with pytest.raises(UserError, match="has no input 'observation'; available: state"):
        FORMATS[".onnx"].load(tmp_path / "p.onnx")
