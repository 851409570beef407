"""A leak in Box2D's Python binding, closed.

A fixture definition takes its shape away from Python and never frees it: a LunarLander reset loses fourteen shapes,
1.6 kB. Small as they are, they end up between the large blocks that learning takes and gives back, so the heap cannot
join these again and grows by far more: PPO grew by 40 MB per 100,000 steps.
"""

from __future__ import annotations

import sys
from typing import Any

OWNED = "owned_shape"
"""Where a fixture definition keeps the shape that it was given."""


def free_shapes() -> None:
    """Let a shape live as long as Python or a fixture definition has it; does nothing where Box2D is not loaded.

    A fixture copies the shape of its definition, so nothing else refers to the original.
    """
    definition: Any = getattr(sys.modules.get("Box2D"), "b2FixtureDef", None)
    if definition is not None and not isinstance(definition.shape, OwnedShape):
        definition.shape = OwnedShape(definition.shape)


class OwnedShape(property):
    """`b2FixtureDef.shape`, with the definition as an owner of the shape."""

    def __init__(self, binding: property) -> None:
        def get(definition: Any) -> Any:
            kept = vars(definition)
            return kept[OWNED] if OWNED in kept else binding.__get__(definition)

        def set_(definition: Any, shape: Any) -> None:
            owned = shape is not None and shape.thisown
            binding.__set__(definition, shape)  # the binding marks the shape as no longer Python's
            if owned:
                shape.thisown = True
            vars(definition)[OWNED] = shape

        super().__init__(get, set_)
