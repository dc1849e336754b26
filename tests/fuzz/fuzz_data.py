"""Fuzzing of the data that the Gaussian process is given: awkward, degenerate, enormous, and wrong.

Whatever the data are: they are refused with a message, or the model predicts finite numbers with positive variances,
and its state can be saved and restored to the same predictions.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import replace

import torch
from torch import Generator, Tensor

from samba_rl.agents.agent import schema_of
from samba_rl.agents.outliers import OutlierTest
from samba_rl.data import DataSet
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.settings import GPSettings
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions
from tests.fuzz.cases import Words, Wrong, cases
from tests.line import Line
from tests.threads import one_thread

SIZES = (1, 2, 3, 7, 20, 60)
VALUES = (0.0, -0.0, 1e-320, 1e-150, 1e-12, 1.0, 1e6, 1e12, 1e60, 1e150, 1e300, float("nan"), float("inf"))


def fuzz(seconds: float, seed: int) -> list[str]:
    """Give awkward data to the model for some seconds; return the failures, one line each."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cases(seconds, seed, one_case, least=3)


def one_case(draw: random.Random, words: Words) -> None:
    """Fit a model to awkward data, add some more, and predict."""
    task: Task = Line() if draw.random() < 0.5 else make_task("safe-pendulum")
    words(task.name)
    steps = awkward(task, draw, words)
    settings = GPSettings(
        fit=FitSettings(),
        outputs=draw.choice(["independent", "independent", "correlated"]),
        sparse_above=draw.choice([3000, 3000, 10]),
        inducing=draw.choice([500, 5]),
        precision=draw.choice(["float64", "float32"]),
        calibration=draw.choice(["none", "conformal"]),
    )
    words(f"{settings.outputs}, sparse above {settings.sparse_above}, {settings.precision}, {settings.calibration}")
    data = DataSet.empty(schema_of(task)).append(steps).transitions
    if OutlierTest(task, schema_of(task)).judge(data, None).aside.shape != (len(steps),):
        raise Wrong("the test for outliers lost a step")
    model = GPDynamics(task, settings)
    model.fit(data)
    check(model, task, data)
    if draw.random() < 0.3:
        words("added again")
        model.add(data)
        check(model, task, data)
    elif settings.outputs == "independent":
        again = GPDynamics(task, settings)
        again.load_state_dict(model.state_dict(), data)
        queries = task.model_inputs(data.x, data.u)
        if not torch.equal(again.predict(queries).mean, model.predict(queries).mean):
            raise Wrong("the restored model predicts something else")


def check(model: GPDynamics, task: Task, data: Transitions) -> None:
    """Check that predictions at the data and between them are numbers."""
    queries = task.model_inputs(data.x, data.u)
    for where in (queries, queries + 0.1 * queries.std(0, correction=0), torch.zeros_like(queries)):
        found = model.predict(where, loo=True)
        assert found.zeta is not None
        if not all(bool(part.isfinite().all()) for part in (found.mean, found.variance, found.zeta)):
            raise Wrong("a prediction is not finite")
        if bool((found.variance < 0).any()):
            raise Wrong("a variance is negative")


def awkward(task: Task, draw: random.Random, words: Words) -> Transitions:
    """Return steps that are awkward in one or two ways."""
    n, nx, nu, m = draw.choice(SIZES), len(task.states), len(task.actions), len(task.constraints)
    generator = Generator().manual_seed(draw.randrange(2**31))
    low, high = task.action_bounds()
    x = torch.randn(n + 1, nx, generator=generator, dtype=torch.float64)
    u = low + (high - low) * torch.rand(n, nu, generator=generator, dtype=torch.float64)
    words(f"{n} steps")
    for _ in range(draw.choice([1, 1, 2])):
        x, u = changed(x, u, draw, words)
    n = len(u)
    steps = Transitions(
        x=x[:-1],
        u=u,
        x_next=x[1:],
        cost=x[1:, 0].square(),
        safety=torch.zeros(n, m, dtype=torch.float64),
        violation=torch.zeros(n, m, dtype=torch.bool),
        terminated=torch.zeros(n, dtype=torch.bool),
        episode=torch.zeros(n, dtype=torch.int64),
        step=torch.arange(n),
    )
    if draw.random() < 0.1:
        name = draw.choice(["x", "u", "cost", "safety", "episode", "step", "terminated"])
        value: Tensor = getattr(steps, name)
        other = draw.choice([value.float(), value[:-1], value[..., None], value.to(torch.int32), value.bool()])
        words(f"{name} of shape {list(other.shape)}, {other.dtype}")
        return replace(steps, **{name: other})
    return steps


def changed(x: Tensor, u: Tensor, draw: random.Random, words: Words) -> tuple[Tensor, Tensor]:
    """Return states [n + 1, nx] and actions [n, nu] that are awkward in one more way."""
    kind = draw.choice(["repeated", "constant", "collinear", "scaled", "offset", "one value", "drift", "tiny noise"])
    column, x = draw.randrange(x.shape[1]), x.clone()
    words(kind)
    if kind == "repeated":
        x, u = x[:1].expand_as(x).clone(), u[:1].expand_as(u).clone()
    elif kind == "constant":
        x[:, column] = draw.choice(VALUES[:9])
    elif kind == "collinear":
        x = x[:, :1] * torch.arange(1, x.shape[1] + 1)
    elif kind == "scaled":
        x[:, column] *= draw.choice(VALUES[2:11])
    elif kind == "offset":
        x[:, column] += draw.choice([1e6, 1e9, 1e15, -1e30])
    elif kind == "one value":
        value = draw.choice(VALUES)
        words(f"{value:g}")
        x[draw.randrange(len(x)), column] = value
    elif kind == "drift":
        x[:, column] = torch.arange(len(x)) * draw.choice([1e-9, 1.0, 1e9])
    else:
        x = x[:1] + 1e-14 * x
    return x, u
