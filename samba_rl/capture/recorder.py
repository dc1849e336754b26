"""The recorder: calls functions, and repeats recordings of calls that come again."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast, final

import torch
from torch import Generator, Tensor, nn

from samba_rl.capture.graphs import CudaGraphs, Graphs

T = TypeVar("T")

KEPT = 32
"""Number of latest recordings that are kept."""


@final
class Recorder:
    """Calls functions; on a GPU it records a call that comes for the second time, and repeats the recording from then.

    A function takes trees: tensors, modules, and tuples, lists, dicts and dataclasses of those; anything else in them
    is a constant. It returns a tree, and may change tensors that stay where they are, but no other state. Calls with
    the same shapes and constants are the same, whatever their tensors hold. A call that cannot be recorded is made as
    usual, and so are all later ones of that function.
    """

    def __init__(self, device: torch.device, graphs: Graphs | None = None) -> None:
        self._graphs = CudaGraphs(device) if graphs is None and device.type == "cuda" else graphs
        self._known: OrderedDict[Hashable, _Recording | None] = OrderedDict()
        self.refused: dict[str, str] = {}
        """Why functions are not recorded, by their names."""

    @property
    def records(self) -> bool:
        """Return whether calls are recorded at all."""
        return self._graphs is not None

    def __call__(
        self, function: Callable[..., T], *inputs: object, generator: Generator | None = None, times: int = 1
    ) -> T:
        """Call a function so many times with the same inputs and, as the last one, a generator; return its last result.

        The random numbers are those of plain calls.
        """

        def call() -> T:
            return function(*inputs) if generator is None else function(*inputs, generator)

        graphs, name = self._graphs, function.__qualname__
        if graphs is None or name in self.refused:
            return _repeated(call, times)
        tensors: list[Tensor] = []
        key = (function, _shape(inputs, tensors))
        if key not in self._known:
            result, problem = graphs.watch(call)
            if problem:
                self.refused[name] = problem
            self._known[key] = None
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return result if times == 1 else self(function, *inputs, generator=generator, times=times - 1)
        self._known.move_to_end(key)
        recording = self._known[key]
        if recording is None:
            try:
                recording = _Recording(graphs, function, inputs, generator)
            except Exception as error:
                self.refused[name] = f"{type(error).__name__}: {error}"
                return _repeated(call, times)
            self._known[key] = recording
        return cast("T", recording.play(tensors, generator, times))


@final
class _Recording:
    """A recorded call, with memory of its own for what it takes."""

    def __init__(
        self, graphs: Graphs, function: Callable[..., object], inputs: object, generator: Generator | None
    ) -> None:
        self._tensors: list[Tensor] = []
        own = _mapped(inputs, lambda tensor: tensor.detach().clone())
        _shape(own, self._tensors)
        # Only tensors of one type are copied all at once.
        types = [tensor.dtype for tensor in self._tensors]
        self._alike = [[i for i, one in enumerate(types) if one is kind] for kind in set(types)]
        self._generator = None if generator is None else Generator(generator.device)
        assert isinstance(own, tuple)
        given = own if self._generator is None else (*own, self._generator)
        if generator is not None and self._generator is not None:
            self._generator.set_state(generator.get_state())
        self._replay, self._result = graphs.record(lambda: function(*given), self._generator)
        self._inputs = own  # what it holds must not be freed, nor may its identity be given to another object

    @torch.no_grad()
    def play(self, tensors: list[Tensor], generator: Generator | None, times: int) -> object:
        """Repeat the call so many times with these tensors and this generator."""
        for those in self._alike:
            torch._foreach_copy_([self._tensors[i] for i in those], [tensors[i] for i in those])
        if generator is not None and self._generator is not None:
            self._generator.set_state(generator.get_state())
        _repeated(self._replay, times)
        if generator is not None and self._generator is not None:
            generator.set_state(self._generator.get_state())
        return _mapped(self._result, Tensor.clone)


def _repeated(call: Callable[[], T], times: int) -> T:
    for _ in range(times - 1):
        call()
    return call()


def _shape(tree: object, tensors: list[Tensor]) -> Hashable:
    """Return what distinguishes trees of different shapes or constants, and append all tensors."""
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return tree.shape, tree.dtype
    if isinstance(tree, nn.Module):
        own = [value for name, value in vars(tree).items() if not name.startswith("_")]
        held = [*tree.parameters(recurse=False), *tree.buffers(recurse=False), *tree.children()]
        return type(tree), _shape(own, []), _shape(held, tensors)
    if isinstance(tree, tuple | list):
        return type(tree), *[_shape(each, tensors) for each in tree]
    if isinstance(tree, dict):
        return tuple((name, _shape(each, tensors)) for name, each in sorted(tree.items()))
    if _is_tree(tree):
        return type(tree), *[_shape(each, tensors) for each in _values(tree)]
    try:
        hash(tree)
    except TypeError:
        return id(tree)
    return tree


def _mapped(tree: object, change: Callable[[Tensor], Tensor]) -> object:
    """Return a copy of a tree whose tensors have been changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, nn.Module):
        return copy.deepcopy(tree)
    if isinstance(tree, tuple | list):
        each = [_mapped(one, change) for one in tree]
        return type(tree)(*each) if hasattr(tree, "_fields") else type(tree)(each)  # type: ignore[arg-type]
    if isinstance(tree, dict):
        return {name: _mapped(one, change) for name, one in tree.items()}
    if _is_tree(tree):
        names = [part.name for part in fields(tree)]  # type: ignore[arg-type]
        return replace(tree, **{n: _mapped(v, change) for n, v in zip(names, _values(tree), strict=True)})  # type: ignore[type-var]
    return tree


def _is_tree(value: object) -> bool:
    """Return whether a value is a dataclass that holds tensors, if only in what it holds."""
    if not is_dataclass(value) or isinstance(value, type):
        return False
    return any(isinstance(each, Tensor | nn.Module) or _is_tree(each) for each in _values(value))


def _values(value: object) -> list[object]:
    return [getattr(value, part.name) for part in fields(value)]  # type: ignore[arg-type]
