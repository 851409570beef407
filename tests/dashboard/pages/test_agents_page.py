"""Runs of several agents on the page and in listings: policies with their returns, the league of a game, metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cases import agent_runs
from dashboard_cases import Served, served

from rl_training.assembly.multi_agent.matches import league_table
from rl_training.cli import main
from rl_training.runs.directory import RunDir


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return agent_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def site(runs: dict[str, Path]) -> Iterator[Served]:
    with served(runs["team"].parent) as found:
        yield found


def test_policies_have_their_agents_and_returns(site: Served, runs: dict[str, Path]) -> None:
    found = site.get(f"/api/runs/{runs['team'].name}/agents")
    stored = json.loads((runs["team"] / "metrics.json").read_text())
    assert [(one["name"], one["agents"]) for one in found["policies"]] == [
        ("early", ["agent_0", "agent_1"]),
        ("late", ["agent_2"]),
    ]
    for one in found["policies"]:
        assert one["eval"] == stored[f"eval/{one['name']}/return_mean"]
        assert one["rollout"] == stored[f"rollout/{one['name']}/return_mean"]
    assert found["team"]["eval"] == stored["eval/team_return"]
    assert found["league"] is None


def test_a_game_has_its_elo_table(site: Served, runs: dict[str, Path]) -> None:
    found = site.get(f"/api/runs/{runs['game'].name}/agents")
    assert found["policies"] == []
    expected = league_table(RunDir(runs["game"]))
    assert found["league"]["members"] == json.loads(json.dumps(expected["members"]))
    assert "learner" in [member["name"] for member in found["league"]["members"]]


def test_metrics_of_policies_and_teams_can_be_searched(site: Served, runs: dict[str, Path]) -> None:
    known = site.get("/api/metrics", run=runs["team"].name)["metrics"]
    assert {"rollout/team_return", "rollout/early/return_mean", "eval/late/return_mean", "agent_steps"} <= set(known)


def test_listings_and_comparisons_know_them(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"--output-dir={runs['team'].parent}"
    columns = "algorithm,agent_steps,rollout/late/return_mean,eval/team_return"
    assert main(["list", "agent_steps>0", f"--columns={columns}", "--json", folder]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["agent_steps"] > 128
    assert row["algorithm"] == "ippo"
    names = "eval/late/return_mean,rollout/team_return"
    assert main(["compare", *[str(run) for run in runs.values()], f"--metrics={names}", "--json", folder]) == 0
    assert "eval/late/return_mean" in capsys.readouterr().out
    picture = tmp_path / "team.png"
    words = ["plot", "curves", str(runs["team"]), "--metric=rollout/early/return_mean", f"--output={picture}", folder]
    assert main(words) == 0
    assert picture.stat().st_size > 0
