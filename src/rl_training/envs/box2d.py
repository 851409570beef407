"""Works around a memory leak in Box2D's Python binding.

Assigning a shape to a fixture definition takes its ownership away from Python, and nothing frees it: each LunarLander
reset leaks fourteen shapes, 1.6 kB. They fragment the heap between the large blocks that learning allocates and frees,
so the process grows by far more: 40 MB per 100,000 steps of PPO.
"""

from __future__ import annotations

import sys
from typing import Any

OWNED = "owned_shape"
"""Attribute of a fixture definition that keeps its shape alive."""


def free_shapes() -> None:
    """Make Python the owner of shapes in fixture definitions again; does nothing if Box2D is not loaded.

    A fixture copies the shape of its definition, so nothing else refers to the original.
    """
    definition: Any = getattr(sys.modules.get("Box2D"), "b2FixtureDef", None)
    if definition is not None and not isinstance(definition.shape, OwnedShape):
        definition.shape = OwnedShape(definition.shape)


class OwnedShape(property):
    """Replaces `b2FixtureDef.shape`: the definition holds a reference to its shape, and Python frees it."""

    def __init__(self, binding: property) -> None:
        def get(definition: Any) -> Any:
            kept = vars(definition)
            return kept[OWNED] if OWNED in kept else binding.__get__(definition)

        def set_(definition: Any, shape: Any) -> None:
            owned = shape is not None and shape.thisown
            binding.__set__(definition, shape)  # the binding sets `thisown` to False
            if owned:
                shape.thisown = True
            vars(definition)[OWNED] = shape

        super().__init__(get, set_)
