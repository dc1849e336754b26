"""`DataSet`: an immutable set of real transitions that grows by whole episodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from samba_rl.data import minari_io, tables
from samba_rl.data.files import FilePath
from samba_rl.data.minari_io import Bounds, OfSteps
from samba_rl.data.schema import FIELDS, Schema, check_episodes, check_finite, fitted, room
from samba_rl.errors import UserError
from samba_rl.types import Traces, Transitions


class _Store:
    """Memory for rows, each written once, that data sets which grew from each other share."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.used = 0
        self.numbers: set[int] = set()
        self.free = 0
        """Smallest number above those of all episodes."""
        self.rows = room(schema, 0)

    def add(self, steps: Transitions) -> None:
        """Append steps; the memory doubles when it is full, so that rows are rarely copied."""
        if not len(steps):
            return
        end = self.used + len(steps)
        if end > len(self.rows):
            old, self.rows = self.rows, room(self.schema, max(end, 2 * len(self.rows)))
            self._write(0, self.used, old)
        self._write(self.used, end, steps)
        self.used = end
        # Tracked rather than searched for: a run of a million steps appends tens of thousands of times.
        free = int(steps.episode.max()) + 1
        self.free = max(self.free, free) if self.numbers else free
        self.numbers.update(steps.episode.tolist())

    def _write(self, start: int, end: int, steps: Transitions) -> None:
        for name in FIELDS:
            getattr(self.rows, name)[start:end] = getattr(steps, name)[: end - start]


@final
@dataclass(frozen=True, eq=False)
class DataSet:
    """Real transitions in the order in which they were taken, as float64 on the CPU.

    A data set never changes: `append` returns a new one, which shares the memory of the old. The tensors of
    `transitions` are views of that memory, so they must not be written to.
    """

    schema: Schema
    """Names of the columns."""
    episodes: int
    """Number of episodes."""
    _length: int = field(repr=False)
    _store: _Store = field(repr=False)

    @staticmethod
    def empty(schema: Schema) -> DataSet:
        """Return a data set without transitions."""
        return DataSet(schema, 0, 0, _Store(schema))

    @cached_property
    def transitions(self) -> Transitions:
        """Return all transitions, as views that must not be written to."""
        return Transitions(**{name: getattr(self._store.rows, name)[: self._length] for name in FIELDS})

    def __len__(self) -> int:
        return self._length

    def append(self, steps: Traces | Transitions) -> DataSet:
        """Return a data set with these whole episodes added; raise UserError if they do not fit exactly.

        The trajectories of `Traces` are numbered from the highest number here. `Transitions` keep their numbers.
        """
        store = self._store
        if store.used != self._length:
            # Another data set has grown from this one, so this branch needs memory of its own.
            store = _Store(self.schema)
            store.add(self.transitions)
        if isinstance(steps, Traces):
            steps = steps.transitions(first_episode=store.free)
        steps = fitted(self.schema, steps)
        check_finite(self.schema, steps)
        numbers = check_episodes(self.schema, steps)
        for number in numbers:
            if number in store.numbers:
                raise UserError(f"episode {number} is already in the data set; number new ones from {store.free}")
        store.add(steps)
        return DataSet(self.schema, self.episodes + len(numbers), store.used, store)

    # Tables ---------------------------------------------------------------------------------------------------------

    def to_csv(self, path: FilePath) -> None:
        """Write a CSV file with a header line; its numbers read back exactly."""
        tables.write_csv(path, self.schema, self.transitions)

    @staticmethod
    def from_csv(path: FilePath) -> DataSet:
        """Read a file that `to_csv` wrote; its columns may be in any order."""
        return _read(f"'{path}'", *tables.read_csv(path))

    def to_parquet(self, path: FilePath) -> None:
        """Write a Parquet file with the columns of the CSV file, as float64, int64 and bool."""
        tables.write_parquet(path, self.schema, self.transitions)

    @staticmethod
    def from_parquet(path: FilePath) -> DataSet:
        """Read a file that `to_parquet` wrote; its columns may be in any order."""
        return _read(f"'{path}'", *tables.read_parquet(path))

    # Minari ---------------------------------------------------------------------------------------------------------

    def to_minari(
        self,
        dataset_id: str,
        *,
        env: str | None = None,
        action_bounds: Bounds | None = None,
        overwrite: bool = False,
        **about: str,
    ) -> None:
        """Write a Minari dataset whose observations are the states and whose rewards are the negative costs.

        Its infos have a first row for the reset: `safety` and `violation` [T + 1, m], `cost` [T + 1] (the sum of the
        safety costs) and `episode` [T + 1]. `action_bounds` (lows [nu], highs [nu]) bound its action space; None leaves
        it unbounded. `env` is the id of the Gymnasium environment to record; `about` may give `author`,
        `author_email`, `algorithm_name`, `code_permalink` and `description`.
        """
        minari_io.write_minari(
            dataset_id,
            self.schema,
            self.transitions,
            env=env,
            action_bounds=action_bounds,
            overwrite=overwrite,
            about=about,
        )

    @staticmethod
    def from_minari(
        dataset_id: str,
        *,
        schema: Schema | None = None,
        safety: OfSteps | None = None,
        violation: OfSteps | None = None,
    ) -> DataSet:
        """Read a Minari dataset: one that `to_minari` wrote, or any other with vector observations and actions.

        A dataset of another origin has no safety costs. Then `safety` computes them from the states reached [N, nx] and
        actions [N, nu]: [N] or [N, m]. `violation` likewise tells which steps are unsafe (None: those with a positive
        safety cost). `schema` names the columns (None: as in the dataset, or else x0, x1, …, u0, …, c0, …).
        """
        where = f"Minari dataset '{dataset_id}'"
        found = minari_io.read_minari(where, dataset_id, schema=schema, safety=safety, violation=violation)
        return _read(where, *found)


def _read(where: str, schema: Schema, steps: Transitions) -> DataSet:
    try:
        return DataSet.empty(schema).append(steps)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
