"""Initial weights: orthogonal, and the cheaper way for very wide layers gives the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.numerics.initial_weights import WIDE, orthogonal, projection_matrix, weight_matrix, wide_orthogonal


@pytest.mark.parametrize(("rows", "columns"), [(4, 9), (9, 4), (5, 5)])
def test_orthogonal(rows: int, columns: int) -> None:
    matrix = orthogonal(np.random.default_rng(0), rows, columns, 2.0).astype(np.float64)
    product = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    np.testing.assert_allclose(product, 4.0 * np.eye(min(rows, columns)), atol=1e-5)


def test_wide_layers_are_the_same_up_to_the_last_bit() -> None:
    ours, reference = (make(np.random.default_rng(1), 24, 40_000, 1.4) for make in (wide_orthogonal, orthogonal))
    assert ours.flags.c_contiguous
    assert np.abs(ours - reference).max() <= np.spacing(np.abs(reference).max())
    np.testing.assert_allclose(ours @ ours.T, 1.4**2 * np.eye(24), atol=1e-5)


def test_only_very_wide_projections_are_made_the_cheaper_way() -> None:
    for rows, columns, kind in ((8, WIDE - 1, "orthogonal"), (8, WIDE, "xavier"), (64, WIDE, "lecun")):
        ours, usual = (
            make(np.random.default_rng(2), rows, columns, kind, 1.0) for make in (projection_matrix, weight_matrix)
        )
        np.testing.assert_array_equal(ours, usual)
    wide = projection_matrix(np.random.default_rng(2), 8, WIDE, "orthogonal", 1.0)
    np.testing.assert_array_equal(wide, wide_orthogonal(np.random.default_rng(2), 8, WIDE, 1.0))
