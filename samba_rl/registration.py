"""The Gymnasium ids of the paper's systems, known as soon as both packages are imported, in either order.

Gymnasium 1.x has no plug-in mechanism, and `import samba_rl` must not import Gymnasium: so where Gymnasium is not there
yet, an import hook waits for it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

IDS = {
    "SafePendulum-v0": "safe-pendulum",
    "SafeCartPoleDoublePendulum-v0": "safe-cart-pole-double-pendulum",
    "SafeFetchReach-v0": "safe-fetch-reach",
}
"""Gymnasium id -> name of the task."""

HORIZON = 30
"""Steps in an episode of the paper's systems."""


def register() -> None:
    """Register the ids with Gymnasium, unless they are registered already."""
    import gymnasium

    for env_id, task in IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="samba_rl.tasks.envs:SafeEnv",
                vector_entry_point="samba_rl.tasks.envs:SafeVectorEnv",
                max_episode_steps=HORIZON,
                kwargs={"task": task},
            )


def register_when_imported() -> None:
    """Register now if Gymnasium is imported, else as soon as it is."""
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _GymnasiumFinder())


class _GymnasiumFinder(importlib.abc.MetaPathFinder):
    """Finds Gymnasium like any other finder, once, and has the ids registered after it has loaded."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)
        return spec


class _RegisteringLoader(importlib.abc.Loader):
    """Loads a module with its own loader, then registers the ids."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module has its own loader again: resources and reloads behave as if we had not been here.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        register()
