"""Constraints of a user's own, beside CVaR, the mean and the probability."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

from samba_rl.errors import UserError
from samba_rl.improve.constraints import KINDS, Constraint

Kind = TypeVar("Kind", bound=type[Constraint])
_TAKEN = (*KINDS, "none")


def register_constraint(kind: Kind) -> Kind:
    """Make a kind of constraint known by its `label`, for settings, files and runs that are loaded again.

    It can decorate a class. Put it at the top level of the file that defines your system, so that whatever loads the
    system knows the constraint.
    """
    if not (isinstance(kind, type) and issubclass(kind, Constraint)):
        raise UserError(f"{kind!r} is no constraint; derive a class from samba_rl.Constraint")
    name = kind.__name__
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UserError(f"the constraint {name} lacks {missing}; implement them as samba_rl.CVaR does")
    label = getattr(kind, "label", None)
    if not (isinstance(label, str) and re.fullmatch(r"[\w-]+", label)):
        raise UserError(f"the constraint {name} has the label {label!r}; give a ClassVar label, such as 'peak'")
    # A file may be loaded twice, and then defines the class anew.
    if label in _TAKEN:
        raise UserError(f"the constraint {name} is called '{label}', which is taken; give it another label")
    KINDS[label] = kind
    return kind
