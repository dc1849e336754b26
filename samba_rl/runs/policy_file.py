"""Policies as JSON files that a program in any language can use.

A `samba-rl policy` is a network. With an observation o, whose quantities are in the order of `observation.names`:

    h = (o - observation.centre) / observation.scale
    h = tanh(weight h + bias)                            for each of the layers but the last
    m = weight h + bias                                  for the last one
    m = squash tanh(m / squash)                          unless action.squash is null
    u = (low + high) / 2 + (high - low) / 2 (m + std n)  n: a fresh standard normal number for each action
    u = min(max(u, low), high)

Without noise (n = 0) the same formula gives the mean action. `std` is in half widths of the action range.

A policy of several experts (version 2) has a `gate` too: layers like those of the policy, which map the first h of an
episode to a logit for each expert. An expert is drawn with the probabilities exp(logit) / Σ exp(logit), or without
noise the one with the largest logit is taken. It acts in all of the episode: before the first of the `layers`, every h
is followed by a column for each expert, 1 for this one and 0 for the others.

A `samba-rl actions` file, for first trials, has the actions themselves: `sequence[t]` is applied at step t. A
`samba-rl own` file names a controller that is the user's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from samba_rl.data.files import disk_error, replacing
from samba_rl.errors import UserError
from samba_rl.improve.experts import MixturePolicy, NetworkPolicy
from samba_rl.improve.policies import GaussianPolicy, OpenLoopPolicy, UniformPolicy
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Scripted

FORMAT, VERSION, SEVERAL = "samba-rl policy", 1, 2
"""Name of the format, and its versions for a single network and for several experts with a gate."""


def policy_record(task: Task, policy: Policy, episode: int, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the file of a policy for an episode of a trial, from 0."""
    if isinstance(policy, GaussianPolicy | MixturePolicy):
        return {**network_record(task, policy), "provenance": dict(provenance)}
    sequence = _sequence(task, policy, episode, seed=int(provenance.get("seed", 0)))
    return {
        "format": "samba-rl actions",
        "version": VERSION,
        "action": _actions(task),
        "dt": task.dt,
        "sequence": sequence.tolist(),
        "provenance": dict(provenance),
    }


def network_record(task: Task, policy: NetworkPolicy) -> dict[str, Any]:
    """Return the network of a policy, its normalisation, its bounds and its noise as plain values."""
    actor, seen = policy.actor, len(task.observations)  # what follows them are the columns of the experts
    observation = {"centre": actor.centre[:seen].tolist(), "scale": actor.scale[:seen].tolist()}
    gate = {"gate": plain_layers(policy.gate.layers())} if isinstance(policy, MixturePolicy) else {}
    return {
        "format": FORMAT,
        "version": SEVERAL if gate else VERSION,
        "observation": {"names": [one.name for one in task.observations], **observation},
        "action": {**_actions(task), "squash": policy.settings.mean_bound},
        "dt": task.dt,
        **gate,
        "layers": plain_layers((layer.weight, layer.bias) for layer in actor.layers),
        "activation": "tanh",
        "std": policy.std.tolist(),
    }


def plain_layers(layers: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Return layers, each of them weights and biases as tensors or arrays, as plain values."""
    return [{"weight": weight.tolist(), "bias": bias.tolist()} for weight, bias in layers]


def noise_seed(seed: int, trial: int, episode: int) -> int:
    """Return a seed for the noise of an episode, which the program that runs it may use."""
    return (seed * 1_000_003 + trial * 1009 + episode) % 2**31


def write_record(path: Path, record: Mapping[str, Any], *, own: bool = False) -> None:
    """Write the file of a policy, completely or not at all; in the folder of a run (`own`) no link is followed."""
    try:
        with replacing(path, own=own) as file:
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise disk_error(path, error) from error


def _actions(task: Task) -> dict[str, Any]:
    return {
        "names": [one.name for one in task.actions],
        "low": [one.low for one in task.actions],
        "high": [one.high for one in task.actions],
    }


def _sequence(task: Task, policy: Policy, episode: int, seed: int) -> Tensor:
    """Return the actions [T, nu] of a policy that does not look at the observation."""
    one = policy.episode(episode) if isinstance(policy, Scripted) else policy
    if not isinstance(one, (UniformPolicy, OpenLoopPolicy)):
        raise UserError(
            f"a {type(policy).__name__} cannot be written to a file; a learner whose policy is a network can be: samba"
        )
    generator = Generator().manual_seed(seed)
    blind = torch.zeros(1, len(task.observations), dtype=torch.float64)
    return task.clip(torch.cat([one(blind, generator) for _ in range(task.horizon)]))
