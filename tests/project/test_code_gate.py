"""No module starts, imports or calls what a config names but through the gate of `consent`.

Read from the syntax tree. Whoever needs a new place puts it on the list with the reason why no stored config decides on
what is run there, or asks `consent.require` first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rl_training"

WAYS = frozenset(
    {
        *("import_module", "import_own", "__import__", "spec_from_file_location", "run_path", "run_module"),
        *("load_env_creator", "exec", "eval", "urlopen", "Popen", "run", "check_call", "check_output", "system"),
        *("execv", "execve", "execvp", "spawnv", "posix_spawn"),
    }
)
MODULES = {"run": "subprocess", "system": "os", "check_call": "subprocess", "eval": "", "exec": ""}
"""Words that many things are called; here only those of this module, or the bare one."""

KNOWN: dict[str, str] = {
    "system/imports.py:import_module": "names of the package",
    "registry.py:import_module": "behind require, or called with a path that stands in code",
    "registry.py:import_own": "behind require, or a path of the table of built-in parts",
    "monitoring/alert_hooks.py:Popen": "the constructor asks require",
    "monitoring/alert_hooks.py:urlopen": "the constructor asks require",
    "assembly/algorithm.py:import_own": "a path in an AlgorithmSpec, which the registry gave",
    "jax/host.py:import_own": "a path in an AlgorithmSpec, which the registry gave",
    "jax/host.py:import_module": "the module of that path",
    "jax/programs/disk_cache.py:import_own": "a file of the user's own cache folder, which nobody else can write to",
    "jax/envs/__init__.py:import_own": "a path of the table of built-in environments",
    "envs/factory.py:import_own": "a path of the package",
    "envs/multi_agent/build.py:import_own": "a path of the package",
    "envs/factory.py:load_env_creator": "a spec that suites.find gave",
    "envs/vector/native.py:load_env_creator": "a spec that suites.find gave",
    "envs/multi_agent/sources.py:import_module": "environments found in mpe2 and in four folders of pettingzoo",
    "envs/suites.py:import_module": "behind require, or the package of a suite",
    "envs/workers/fork_server.py:import_module": "names of the package",
    "envs/workers/server.py:Popen": "this interpreter, with the package's own code",
    "system/machine.py:Popen": "git",
    "system/signals.py:run": "scontrol, of SLURM",
    "logging/video.py:Popen": "ffmpeg",
    "checkpointing/state_tree.py:import_module": "ml_dtypes",
    "experiments/__init__.py:import_module": "names of the package",
    "dashboard/actions.py:Popen": "`rl resume` in this interpreter; RunDir.to_run has asked for consent",
    "dashboard/showing.py:Popen": "this interpreter, with the package's own server",
    "distributed/local_executor.py:Popen": "this interpreter, with words of RunSet.command, which asks for consent",
    "distributed/ray_member.py:Popen": "the same on a node; the parent has asked for consent",
    "distributed/ray_executor.py:Popen": "this interpreter, with the package's own driver",
    "distributed/local_cluster.py:Popen": "this interpreter, with Ray's own command",
    "distributed/last_words.py:Popen": "/bin/sh with a line of the package; the message is an argument",
    "distributed/slurm_executor.py:run": "commands of SLURM; options of a record need its seal",
    "export/numpy_file.py:run_path": "the policy.py that was just written from the package's own template",
    "experiments/launching/scheduling/slurm_script.py:run": "scontrol, of SLURM",
    "cli/commands/__init__.py:import_module": "names in the table of commands",
    "cli/commands/many/sweep.py:execve": "this interpreter, with words of RunSet.command, which asks for consent",
}


def places() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
            if name in WAYS and MODULES.get(name, owner) == owner:
                yield f"{path.relative_to(SOURCE)}:{name}"


def test_every_place_that_runs_something_is_known() -> None:
    found = set(places())
    assert sorted(found - set(KNOWN)) == [], f"say in KNOWN of {Path(__file__).name} why no stored config decides there"
    assert sorted(set(KNOWN) - found) == [], f"no longer there; remove them from KNOWN of {Path(__file__).name}"
