"""Packed states come back to the bit; any other bytes give a ValueError or a State."""

from __future__ import annotations

import json
import math
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.data.packing import pack, unpack
from samba_rl.types import State

DTYPES = (torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool)
NUMPY = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.int64: np.int64,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}
ODD = ("", "$", "$tensors", "a/b", "..", "\0", "\n", '"', "\\", "θ̇", "🙂", "\u2028", "\ufeff", "\udc80", "NaN", "null")
TEXTS = st.sampled_from(ODD) | st.text(max_size=8)
NUMBERS = (
    st.integers()
    | st.sampled_from([0, -1, 2**53 + 1, 2**63, -(2**64), 10**400])
    | st.floats()
    | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e22, 0.1 + 0.2])
)


def laid_out(tensor: Tensor, how: str) -> Tensor:
    """Return the same values in another memory layout."""
    if how == "strided":
        return torch.stack([tensor, tensor], dim=-1)[..., 0]
    if how == "turned" and tensor.dim() > 1:
        return tensor.transpose(0, -1)
    if how == "repeated":
        return tensor.expand(2, *tensor.shape)
    return tensor


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Draw tensors of arbitrary bits, which include every kind of NaN."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype == torch.bool:
        data = bytearray(byte % 2 for byte in data)
    array: NDArray[Any] = np.frombuffer(data, NUMPY[dtype]).reshape(shape)
    return laid_out(torch.from_numpy(array.copy()), draw(st.sampled_from(["plain", "strided", "turned", "repeated"])))


LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | tensors()
VALUES = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3), max_leaves=8
)
STATES = st.dictionaries(TEXTS, VALUES, max_size=4)


def same(a: Any, b: Any) -> bool:
    """Compare types, order and bits; any NaN equals any other."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(a.numpy().tobytes() == b.numpy().tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("<d", a) == struct.pack("<d", b)
    return bool(a == b)


def plain(value: Any) -> bool:
    """Return whether a State may hold this value."""
    if isinstance(value, dict):
        return all(type(name) is str and plain(part) for name, part in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    if isinstance(value, Tensor):
        return value.dtype in DTYPES and value.device.type == "cpu"
    return value is None or type(value) in (bool, int, float, str)


def packed_by_hand(text: str | bytes, numbers: bytes = b"") -> bytes:
    text = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(text)) + text + numbers


def described(about: object, numbers: bytes = b"") -> bytes:
    """Pack by hand a state of one tensor with this description."""
    return packed_by_hand(json.dumps({"a": {"$tensor": about}}), numbers)


def unpack_or_reject(packed: bytes) -> State | None:
    """Unpack; return None for a ValueError, the only error allowed. A result must be a State."""
    try:
        state = unpack(packed)
    except ValueError:
        return None
    assert type(state) is dict and plain(state)
    return state


# Round trips ----------------------------------------------------------------------------------------------------------


@given(STATES)
@settings(max_examples=300, deadline=None)
def test_any_state_round_trips_to_the_bit(state: State) -> None:
    packed = pack(state)
    back = unpack(packed)
    assert same(back, state)
    # Checksums need equal states to give equal bytes.
    assert pack(back) == packed == pack(state)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [[], [0], [1], [3, 0, 2], [5], [2, 3, 4]])
@pytest.mark.parametrize("how", ["plain", "strided", "turned", "repeated"])
def test_tensors_of_each_type_and_layout_round_trip(dtype: torch.dtype, shape: list[int], how: str) -> None:
    tensor = laid_out((7 * torch.rand(shape) - 3).to(dtype), how)
    back = unpack(pack({"before": torch.ones(3, dtype=torch.uint8), "it": tensor, "after": [torch.tensor(0.5)]}))
    assert same(back["it"], tensor) and same(back["before"], torch.ones(3, dtype=torch.uint8))
    assert same(back["after"], [torch.tensor(0.5)])


def test_the_bits_of_special_values_are_kept() -> None:
    doubles = [0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8DEADBEEF0001, 0x8000000000000000, 1, 0x7FEFFFFFFFFFFFFF]
    singles = [0x7FC00000, 0x7F800001, 0xFFC0BEEF, 0x80000000, 1, 0x7F7FFFFF]
    wide = np.array(doubles, np.uint64).view(np.float64)
    narrow = np.array(singles, np.uint32).view(np.float32)
    back = unpack(pack({"wide": torch.from_numpy(wide), "narrow": torch.from_numpy(narrow)}))
    assert back["wide"].numpy().view(np.uint64).tolist() == doubles
    assert back["narrow"].numpy().view(np.uint32).tolist() == singles


def test_a_generator_continues_from_its_packed_state() -> None:
    generator = torch.Generator().manual_seed(2**63 - 1)
    torch.randn(3, generator=generator)
    other = torch.Generator()
    other.set_state(unpack(pack({"random": generator.get_state()}))["random"])
    assert torch.equal(torch.randn(5, generator=other), torch.randn(5, generator=generator))


def test_parameters_come_back_as_plain_tensors() -> None:
    layer = torch.nn.Linear(2, 3)
    back = unpack(pack(dict(layer.named_parameters())))
    assert type(back["weight"]) is Tensor and not back["weight"].requires_grad
    assert same(back["weight"], layer.weight.detach().clone())


def test_tuples_come_back_as_lists() -> None:
    assert unpack(pack({"a": (1, (2.0, None))})) == {"a": [1, [2.0, None]]}


@given(STATES)
@settings(max_examples=50, deadline=None)
def test_tensors_come_back_as_writable_copies(state: State) -> None:
    packed = pack(state)
    kept = bytes(bytearray(packed))

    def overwrite(value: Any) -> None:
        if isinstance(value, Tensor):
            assert value.is_contiguous() and value.numpy().flags.writeable
            value.zero_()
        elif isinstance(value, (dict, list)):
            for part in value.values() if isinstance(value, dict) else value:
                overwrite(part)

    overwrite(unpack(packed))
    assert packed == kept and same(unpack(packed), state)


def test_a_small_tensor_does_not_keep_a_large_file_in_memory() -> None:
    packed = pack({"small": torch.zeros(2), "large": torch.zeros(1_000_000)})
    small = unpack(packed)["small"]
    assert small.untyped_storage().nbytes() == 8 and small.numpy().base is not None
    assert small.numpy().base.nbytes == 8


@pytest.mark.parametrize(
    "value", [torch.zeros(1, dtype=torch.int32), torch.zeros(1).half(), b"bytes", {1, 2}, object()]
)
def test_packing_rejects_values_that_a_state_cannot_hold(value: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        pack({"a": [value]})


@pytest.mark.parametrize("state", [{"a": {1: 2}}, {"a": {None: 2}}, {"$tensor": 2}, {"a": [{"$tensor": [1, 2, 3]}]}])
def test_packing_rejects_states_that_could_not_come_back(state: State) -> None:
    try:
        packed = pack(state)
    except (TypeError, ValueError):
        return
    assert same(unpack(packed), state)


# Invalid bytes --------------------------------------------------------------------------------------------------------

EXAMPLE: State = {
    "numbers": [1, -2.5, math.nan, None, True, "text"],
    "nested": {"x": torch.arange(6.0).reshape(2, 3), "mask": torch.tensor([True, False]), "empty": torch.zeros(0, 4)},
    "random": torch.arange(9, dtype=torch.uint8),
    "count": torch.tensor(7),
}


def test_every_truncation_is_rejected() -> None:
    packed = pack(EXAMPLE)
    for length in range(len(packed)):
        with pytest.raises(ValueError, match=r"."):
            unpack(packed[:length])


@given(STATES, st.data())
@settings(max_examples=100, deadline=None)
def test_a_truncation_of_any_state_is_rejected_or_a_state(state: State, data: st.DataObject) -> None:
    packed = pack(state)
    unpack_or_reject(packed[: data.draw(st.integers(0, len(packed) - 1))])


def test_every_flipped_bit_is_rejected_or_gives_a_state() -> None:
    packed = bytearray(pack(EXAMPLE))
    for place in range(len(packed)):
        for bit in range(8):
            packed[place] ^= 1 << bit
            unpack_or_reject(bytes(packed))
            packed[place] ^= 1 << bit


@given(STATES, st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 255)), min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_rejected_or_give_a_state(state: State, changes: list[tuple[int, int]]) -> None:
    packed = bytearray(pack(state))
    for place, byte in changes:
        packed[place % len(packed)] = byte
    unpack_or_reject(bytes(packed))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff" * 8)
@example(b"\0" * 8)
@example(b"\0" * 400)
@example(packed_by_hand("[1]"))
@example(packed_by_hand("3"))
@example(packed_by_hand("null"))
@example(packed_by_hand('{"a":1}trailing'))
@example(packed_by_hand("\ufeff{}".encode("utf-16")))
@example(packed_by_hand("{}".encode("utf-32")))
@example(packed_by_hand(b'{"a": "\xed\xa0\x80"}'))
@example(packed_by_hand("[" * 100_000))
@example(packed_by_hand('{"a":' * 100_000))
@example(packed_by_hand('{"a":' + "9" * 10_000 + "}"))
@example(packed_by_hand('{"a":1e999}'))
def test_any_bytes_are_rejected_or_give_a_state(packed: bytes) -> None:
    unpack_or_reject(packed)
    unpack_or_reject(packed_by_hand(packed))


SIZES = st.integers(-2, 4) | st.sampled_from([2**31, 2**62, 2**63, 10**100]) | st.booleans() | st.floats() | st.none()
DESCRIPTIONS = (
    st.tuples(
        st.sampled_from(["float64", "float32", "int64", "uint8", "bool", "object", "O", "<f8", "V8", "complex64"]),
        st.lists(SIZES, max_size=4),
        SIZES,
    )
    | st.recursive(SIZES | TEXTS, lambda part: st.lists(part, max_size=4), max_leaves=6)
    | st.just({"$tensor": ["uint8", [1], 0]})
)


@given(DESCRIPTIONS, st.binary(max_size=40))
@example(["float64", [2**63, 0], 0], b"")
@example(["float64", [2**62, 4, 0], 0], b"")
@settings(max_examples=300, deadline=None)
def test_any_description_of_a_tensor_is_rejected_or_gives_a_tensor(about: object, numbers: bytes) -> None:
    state = unpack_or_reject(described(about, numbers))
    assert state is None or isinstance(state["a"], Tensor)


@pytest.mark.parametrize(
    "about",
    [
        ["float64", [1], -8],
        ["float64", [1], 1],
        ["float64", [2], 0],
        ["float64", [-1], 0],
        ["float64", [-1, -1], 0],
        ["float64", [True], 0],
        ["float64", [1.0], 0],
        ["float64", 1, 0],
        ["float64", [1], 0.0],
        ["float64", [1], "0"],
        ["float64", [1]],
        ["float64", [1], 0, 0],
        ["float16", [1], 0],
        ["object", [1], 0],
        [["float64"], [1], 0],
        {"dtype": "float64"},
        "float64",
        None,
    ],
)
def test_a_tensor_that_does_not_fit_its_bytes_or_its_type_is_rejected(about: object) -> None:
    with pytest.raises(ValueError, match=r"describes no tensor|lies outside its 8 bytes"):
        unpack(described(about, b"\0" * 8))


def peak(act: Callable[[], object]) -> int:
    """Return the peak memory that Python and NumPy allocated, in bytes."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [[2**40], [2**31, 2**31], [2**62, 4], [10**30], [2**20] * 50])
def test_absurd_tensor_sizes_allocate_no_memory(shape: list[int]) -> None:
    def refuse() -> None:
        with pytest.raises(ValueError, match="lies outside its 100 bytes"):
            unpack(described(["float64", shape, 0], b"\0" * 100))

    assert peak(refuse) < 1_000_000


def test_absurd_text_lengths_allocate_no_memory() -> None:
    assert peak(lambda: unpack_or_reject(struct.pack("<Q", 2**50) + b"{}")) < 1_000_000
    assert peak(lambda: unpack_or_reject(struct.pack("<Q", 2**64 - 1) + b"{}")) < 1_000_000


def test_tensors_that_share_bytes_do_not_multiply_memory() -> None:
    shared = {str(i): {"$tensor": ["uint8", [100_000], 0]} for i in range(2_000)}
    packed = packed_by_hand(json.dumps(shared), b"\0" * 100_000)
    assert peak(lambda: unpack_or_reject(packed)) < 20 * len(packed)


def test_bool_bytes_other_than_0_and_1_are_rejected_or_true() -> None:
    state = unpack_or_reject(described(["bool", [4], 0], b"\2\1\0\xff"))
    due = torch.tensor([True, True, False, True])
    assert state is None or (
        torch.equal(state["a"], due) and int(state["a"].sum()) == 3 and not (~state["a"] & due).any()
    )


# Code -----------------------------------------------------------------------------------------------------------------


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("code from a file was run",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_planted_pickle_is_rejected(protocol: int) -> None:
    planted = pickle.dumps(Evil(), protocol)
    with pytest.raises(pytest.fail.Exception):
        pickle.loads(planted)
    for packed in (planted, packed_by_hand(planted), packed_by_hand(planted, planted)):
        with pytest.raises(ValueError, match=r"."):
            unpack(packed)
    with pytest.raises(ValueError, match="describes no tensor"):
        unpack(described(["object", [1], 0], planted))
    # Among the values of a tensor it is harmless data.
    state = unpack(described(["uint8", [len(planted)], 0], planted))
    assert bytes(state["a"].tolist()) == planted


def test_a_file_written_by_torch_is_rejected(tmp_path: Any) -> None:
    torch.save({"a": Evil()}, tmp_path / "planted")
    with pytest.raises(ValueError, match=r"."):
        unpack((tmp_path / "planted").read_bytes())
