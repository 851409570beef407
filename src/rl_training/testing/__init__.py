"""Conformance suites for parts of your own: `check_algorithm`, `check_env`, `check_multi_agent`.

    def test_it_conforms():
        check_algorithm("my_module:MyAlgorithm")

Importing this package is light; torch and Gymnasium are loaded by the first check.
"""

from typing import TYPE_CHECKING, Any

from rl_training.testing.algorithm import ConformanceReport, check_algorithm
from rl_training.testing.subject import ENVIRONMENTS, ConformanceError

if TYPE_CHECKING:
    from rl_training.envs import check_env
    from rl_training.envs.multi_agent.check import check_multi_agent

__all__ = ["check_algorithm", "check_env", "check_multi_agent", "ConformanceError", "ConformanceReport", "ENVIRONMENTS"]


def __getattr__(name: str) -> Any:
    if name == "check_env":
        from rl_training.envs import check_env

        return check_env
    if name == "check_multi_agent":
        from rl_training.envs.multi_agent.check import check_multi_agent

        return check_multi_agent
    raise AttributeError(f"module 'rl_training.testing' has no attribute '{name}'")
