"""When a file counts as doing what its policy does: steps by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.export.check import Agreement, ExportError, compare
from rl_training.types import ActResult, DiscreteSpec


def step(best: float, second: float) -> Agreement:
    """The policy chooses the second option, the file the first."""
    agreement, logits = Agreement(), np.array([[best, second]], np.float32)
    compare(DiscreteSpec(2), np.array([1]), ActResult(np.array([0]), np.array([0]), {}, {"logits": logits}), agreement)
    return agreement


@pytest.mark.parametrize(("best", "second"), [(1.0, 1.0 - 5e-6), (200.0, 200.0 - 1e-4), (-200.0, -200.0 - 1e-4)])
def test_what_rounding_decides_is_a_near_tie(best: float, second: float) -> None:
    """Neighbours of 200 in float32 are 1.5e-5 apart, so a gap of 1e-4 is a few roundings."""
    assert step(best, second).near_ties == 1


@pytest.mark.parametrize(("best", "second"), [(1.0, 1.0 - 5e-5), (200.0, 199.99), (0.0, -2e-5)])
def test_what_rounding_does_not_decide_must_agree(best: float, second: float) -> None:
    with pytest.raises(ExportError, match="1 of 1 choices of the file differ"):
        step(best, second)


def test_the_logit_of_a_forbidden_option_widens_nothing() -> None:
    """It is -1e8, where neighbours in float32 are 8 apart."""
    agreement, logits = Agreement(), np.array([[1.0, 0.5, -1e8]], np.float32)
    beside = ActResult(np.array([0]), np.array([0]), {}, {"logits": logits})
    with pytest.raises(ExportError):
        compare(DiscreteSpec(3), np.array([1]), beside, agreement)
