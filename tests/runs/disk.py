"""A disk that loses power, and one whose calls fail.

`Disk` passes every change below a folder on to the real file system and records it: what was written where, what was
flushed, which names came and went. From the record it builds the folder as a power cut may leave it after any call:
what was not flushed is there, lost, or there in part. A name is flushed by flushing its folder, a file's content by
flushing the file, as POSIX has it.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from samba_rl.data.journal import Journal, Record

Mode = Literal["lost", "kept", "torn"]
"""What becomes of changes that were not flushed."""
WRITING = os.O_WRONLY | os.O_RDWR


class Cut(BaseException):
    """The power is off."""


@dataclass(eq=False)
class Node:
    """A file or a folder."""

    folder: bool
    names: dict[str, Node] = field(default_factory=dict)
    """Entries of a folder at the moment."""


@dataclass(frozen=True)
class Change:
    """One change, to a node."""

    kind: Literal["write", "resize", "flush", "name", "unname", "rename", "ack"]
    node: Node | None = None
    name: str = ""
    other: str = ""
    """New name, for a rename."""
    child: Node | None = None
    place: int = 0
    data: bytes = b""
    count: int = 0
    """Records that the journal has acknowledged."""
    digest: str = ""


@final
class Disk:
    """Records the changes below a folder, and fails on demand."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._content: dict[Node, bytes] = {}
        self._entries: dict[Node, dict[str, Node]] = {}
        self.top = self._found(self.root)
        """What is there already counts as flushed."""
        self.changes: list[Change] = []
        self.names: list[str] = []
        """Names of the calls that changed something, in order."""
        self.failed: list[str] = []
        """Names of the calls that failed."""
        self._fail: tuple[int, int | None, bool] | None = None
        self._files: dict[int, tuple[Node, bool]] = {}
        self._off = False
        self._real: dict[str, Callable[..., Any]] = {}

    @property
    def calls(self) -> int:
        """Return the number of calls that changed something."""
        return len(self.names)

    def fail(self, call: int, code: int | None, *, on: bool = False) -> None:
        """Let the call with this number fail with an error, and those after it if `on`; None cuts the power."""
        self._fail = call, code, on

    @contextmanager
    def recording(self) -> Iterator[Disk]:
        """Record what happens inside."""
        names = ("open", "write", "pwrite", "ftruncate", "fsync", "fdatasync", "replace", "rename", "unlink", "remove",
                 "mkdir", "rmdir", "posix_fallocate", "close", "fdopen")  # fmt: skip
        self._real = {name: getattr(os, name) for name in names}
        file_open, append = builtins.open, Journal.append
        disk = self

        def acknowledged(journal: Journal, record: Record) -> None:
            append(journal, record)
            disk.changes.append(Change("ack", count=len(journal), digest=journal.digest))

        for name in names:
            setattr(os, name, getattr(self, f"_{name}"))
        builtins.open = self._file_open(file_open)
        Journal.append = acknowledged  # type: ignore[method-assign, assignment]
        try:
            yield self
        finally:
            for name, function in self._real.items():
                setattr(os, name, function)
            builtins.open, Journal.append = file_open, append  # type: ignore[method-assign]
            for file in list(self._files):
                with suppress(OSError):
                    self._real["close"](file)
            self._files.clear()
            self._off, self._fail = False, None

    # What a power cut leaves ------------------------------------------------------------------------------------------

    def after(self, count: int, mode: Mode, seed: int, target: Path) -> tuple[int, str]:
        """Build the folder as a cut after `count` changes may leave it; return the records acknowledged till then."""
        draw = random.Random(f"{seed} {count} {mode}")
        content = {node: bytearray(held) for node, held in self._content.items()}
        entries = {node: dict(names) for node, names in self._entries.items()}
        waiting: dict[Node, list[Change]] = {}
        acknowledged = 0, ""
        for change in self.changes[:count]:
            if change.kind == "ack":
                acknowledged = change.count, change.digest
                continue
            assert change.node is not None
            if change.kind == "flush":
                for each in waiting.pop(change.node, []):
                    _apply(each, content, entries)
            else:
                waiting.setdefault(change.node, []).append(change)
        for changes in waiting.values():
            for each in _surviving(changes, mode, draw):
                _apply(each, content, entries)
        self._write_out(self.top, target, content, entries)
        return acknowledged

    def _found(self, path: Path) -> Node:
        """Return the node of something that is there already."""
        node = Node(folder=path.is_dir())
        if node.folder:
            node.names = {each.name: self._found(each) for each in path.iterdir()}
            self._entries[node] = dict(node.names)
        else:
            self._content[node] = path.read_bytes()
        return node

    def _write_out(
        self, node: Node, path: Path, content: dict[Node, bytearray], entries: dict[Node, dict[str, Node]]
    ) -> None:
        if not node.folder:
            path.write_bytes(bytes(content.get(node, b"")))
            return
        path.mkdir(exist_ok=True)
        for name, child in entries.get(node, {}).items():
            self._write_out(child, path / name, content, entries)

    # Calls ------------------------------------------------------------------------------------------------------------

    def _due(self, name: str) -> None:
        """Count a call that changes something, and fail if that is due."""
        if self._off:
            raise Cut
        self.names.append(name)
        if self._fail is None:
            return
        number, code, on = self._fail
        if self.calls == number or (on and self.calls > number):
            self.failed.append(name)
            if code is None:
                self._off = True
                raise Cut
            raise OSError(code, os.strerror(code))

    def _inside(self, path: Any) -> Path | None:
        """Return the path of something below the root, or None."""
        if not isinstance(path, (str, os.PathLike)):
            return None
        whole = Path(os.path.abspath(path))
        return whole if whole == self.root or self.root in whole.parents else None

    def _node(self, path: Path) -> Node:
        """Return the node at a path."""
        node = self.top
        for name in path.relative_to(self.root).parts:
            node = node.names[name]
        return node

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        where = self._inside(path)
        if where is None:
            return int(self._real["open"](path, flags, *rest, **more))
        new = bool(flags & os.O_CREAT) and not os.path.lexists(where)
        if flags & WRITING or new:
            self._due("open")
        file: int = self._real["open"](path, flags, *rest, **more)
        if new:
            parent, child = self._node(where.parent), Node(folder=False)
            parent.names[where.name] = child
            self.changes.append(Change("name", parent, where.name, child=child))
        self._files[file] = self._node(where), bool(flags & os.O_APPEND)
        if flags & os.O_TRUNC and flags & WRITING:
            self.changes.append(Change("resize", self._files[file][0], place=0))
        return file

    def _file_open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            if self._inside(path) is None or not set(mode) & set("wxa+"):
                return real(path, mode, *rest, **more)
            flags = {"w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
            found = next(flag for letter, flag in flags.items() if letter in mode)
            raw = io.BufferedWriter(_Raw(os.open(path, os.O_WRONLY | found, 0o666)))
            return raw if "b" in mode else io.TextIOWrapper(raw, "utf-8", newline=more.get("newline"))

        return opened

    def _fdopen(self, file: int, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if file in self._files and set(mode) & set("wxa+"):
            return io.BufferedWriter(_Raw(file))
        return self._real["fdopen"](file, mode, *rest, **more)

    def _write(self, file: int, data: Any) -> int:
        if file not in self._files:
            return int(self._real["write"](file, data))
        self._due("write")
        node, at_end = self._files[file]
        place = os.fstat(file).st_size if at_end else os.lseek(file, 0, os.SEEK_CUR)
        written: int = self._real["write"](file, data)
        self.changes.append(Change("write", node, place=place, data=bytes(data)[:written]))
        return written

    def _pwrite(self, file: int, data: Any, place: int) -> int:
        if file not in self._files:
            return int(self._real["pwrite"](file, data, place))
        self._due("pwrite")
        written: int = self._real["pwrite"](file, data, place)
        self.changes.append(Change("write", self._files[file][0], place=place, data=bytes(data)[:written]))
        return written

    def _ftruncate(self, file: int, size: int) -> None:
        if file in self._files:
            self._due("truncate")
            self.changes.append(Change("resize", self._files[file][0], place=size))
        self._real["ftruncate"](file, size)

    def _posix_fallocate(self, file: int, place: int, size: int) -> None:
        if file in self._files:
            self._due("reserve")
            end = max(os.fstat(file).st_size, place + size)
            self.changes.append(Change("resize", self._files[file][0], place=end))
        self._real["posix_fallocate"](file, place, size)

    def _fsync(self, file: int, name: str = "fsync") -> None:
        if file in self._files:
            self._due("flush")
        self._real[name](file)
        if file in self._files:
            self.changes.append(Change("flush", self._files[file][0]))

    def _fdatasync(self, file: int) -> None:
        self._fsync(file, "fdatasync")

    def _close(self, file: int) -> None:
        self._files.pop(file, None)
        self._real["close"](file)

    def _replace(self, old: Any, new: Any, **more: Any) -> None:
        one, two = self._inside(old), self._inside(new)
        if one is None or two is None:
            self._real["replace"](old, new, **more)
            return
        assert one.parent == two.parent
        self._due("rename")
        self._real["replace"](old, new, **more)
        parent = self._node(one.parent)
        parent.names[two.name] = parent.names.pop(one.name)
        self.changes.append(Change("rename", parent, one.name, two.name))

    _rename = _replace

    def _unlink(self, path: Any, *, dir_fd: int | None = None, name: str = "unlink") -> None:
        where = self._inside(path) if dir_fd is None else None
        if where is None:
            self._real[name](path, dir_fd=dir_fd)
            return
        if os.path.lexists(where):
            self._due(name)
        self._real[name](path)
        parent = self._node(where.parent)
        del parent.names[where.name]
        self.changes.append(Change("unname", parent, where.name))

    _remove = _unlink

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._unlink(path, dir_fd=dir_fd, name="rmdir")

    def _mkdir(self, path: Any, *rest: Any, **more: Any) -> None:
        where = self._inside(path)
        if where is None or os.path.lexists(where):
            self._real["mkdir"](path, *rest, **more)
            return
        self._due("mkdir")
        self._real["mkdir"](path, *rest, **more)
        parent, child = self._node(where.parent), Node(folder=True)
        parent.names[where.name] = child
        self.changes.append(Change("name", parent, where.name, child=child))


class _Raw(io.RawIOBase):
    """A file that is written by `os.write`."""

    def __init__(self, file: int) -> None:
        self._file = file

    def fileno(self) -> int:
        return self._file

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return os.lseek(self._file, place, whence)

    def tell(self) -> int:
        return os.lseek(self._file, 0, os.SEEK_CUR)

    def write(self, data: Any) -> int:
        return os.write(self._file, bytes(data))

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                with suppress(OSError):
                    os.close(self._file)


def _apply(change: Change, content: dict[Node, bytearray], entries: dict[Node, dict[str, Node]]) -> None:
    """Make one change."""
    node = change.node
    assert node is not None
    if node.folder:
        names = entries.setdefault(node, {})
        if change.kind == "name":
            assert change.child is not None
            names[change.name] = change.child
        elif change.kind == "unname":
            names.pop(change.name, None)
        elif change.name in names:
            names[change.other] = names.pop(change.name)
        return
    held = content.setdefault(node, bytearray())
    if change.kind == "resize":
        del held[change.place :]
        held.extend(bytes(change.place - len(held)))
    else:
        held.extend(bytes(max(0, change.place - len(held))))
        held[change.place : change.place + len(change.data)] = change.data


def _surviving(changes: list[Change], mode: Mode, draw: random.Random) -> list[Change]:
    """Return what is left of changes to a node that were not flushed."""
    if mode != "torn":
        return changes if mode == "kept" else []
    node = changes[0].node
    if node is not None and node.folder:
        return changes[: draw.randint(0, len(changes))]  # in order, as journaling file systems have it
    left = []
    for change in changes:
        if change.kind == "resize" or draw.random() < 0.5:
            left.append(change)
        elif draw.random() < 0.5:
            cut = draw.randint(0, len(change.data))
            left.append(Change("write", change.node, place=change.place, data=change.data[:cut]))
    return left


ERRORS = (errno.EIO, errno.ENOSPC)
"""Errors of a disk that fails or is full."""
