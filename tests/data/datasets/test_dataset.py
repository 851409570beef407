"""Rows, episodes, scores and identity of a dataset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dataset_cases import small_dataset

from rl_training.data.datasets.dataset import check_forms, check_values
from rl_training.data.datasets.info import DatasetError


def test_next_observations_never_cross_an_episode() -> None:
    columns = small_dataset().columns()
    assert columns["obs"][:, 0].tolist() == [10, 11, 12, 20, 21, 30, 31, 32, 33]
    assert columns["next_obs"][:, 0].tolist() == [11, 12, 13, 21, 22, 31, 32, 33, 34]


def test_episodes_returns_and_scores() -> None:
    data = small_dataset()
    assert data.episodes().tolist() == [[0, 3], [3, 5], [5, 9]]
    assert data.returns.tolist() == [3.0, 2.0, 4.0]
    assert data.score(data.returns).tolist() == [75.0, 50.0, 100.0]
    with pytest.raises(DatasetError, match="no reference scores"):
        small_dataset(ref_min=None).score([1.0])  # type: ignore[arg-type]
    worse = small_dataset(ref_min=4.0, ref_max=0.0)  # a higher return would have a lower score
    assert not worse.has_scores
    with pytest.raises(DatasetError, match=r"returns 0, not more than random actions \(4\)"):
        worse.score([1.0])


def test_selected_episodes_keep_their_final_observations() -> None:
    part = small_dataset().select(np.array([2, 1]))
    assert part.columns()["next_obs"][:, 0].tolist() == [31, 32, 33, 34, 21, 22]
    assert part.seeds.tolist() == [30, 20]
    assert part.whole.tolist() == [False, True]
    check_forms(part, "part")


def test_unit_actions_undo_the_bounds() -> None:
    np.testing.assert_allclose(small_dataset().unit_actions(), 0.5)


def test_equal_transitions_have_one_checksum_and_any_change_another() -> None:
    data = small_dataset()
    assert data.sha256 == small_dataset(ref_min=-7.0).sha256
    rewards = data.rewards.copy()
    rewards[4] += 1e-6
    assert replace(data, rewards=rewards).sha256 != data.sha256
    assert replace(data, info=replace(data.info, env_id="Other-v0")).sha256 != data.sha256


def test_wrong_forms_and_values_are_refused_with_their_column() -> None:
    data = small_dataset()
    with pytest.raises(DatasetError, match=r"'here': column 'actions' is float64\[9, 1\], it must be float32\[9, 1\]"):
        check_forms(replace(data, actions=data.actions.astype(np.float64)), "here")
    with pytest.raises(DatasetError, match="column 'episode_starts' does not rise"):
        check_forms(replace(data, starts=np.array([0, 5, 3])), "here")
    rewards = data.rewards.copy()
    rewards[7] = np.nan
    with pytest.raises(DatasetError, match="'here': column 'rewards' is not finite in row 7"):
        check_values(replace(data, rewards=rewards), "here")
