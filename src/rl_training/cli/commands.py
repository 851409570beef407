"""The table of commands: names, flags, examples. Plain data, so that `--help` and completion import nothing else."""

from __future__ import annotations

from dataclasses import replace

from rl_training.cli.analysis_commands import ANALYSIS
from rl_training.cli.arguments import HELP, JSON, OUTPUT_DIR, TRUST, Command, Option
from rl_training.cli.record_commands import FINDING, KEEPING

CONFIG = Option("config", "the same as the argument FILE", "FILE", section="what to train")

ALLOW_CHANGED_CONFIG = Option(
    "allow-changed-config", "take a checkpoint although its run or the stored config is another one than it was"
)

WHAT, HOW, WHERE, LOOK = "what to train", "seeds and machines", "where it is kept", "before it starts, and after"
"""Sections of a page with many flags."""
SHORT_FORMS = (
    Option("algo", "algorithm, see 'rl algorithms'", "NAME", field="algo", section=WHAT),
    Option("env-id", "environment, see 'rl envs'", "ID", field="env_id", section=WHAT),
    Option(
        "total-timesteps", "env steps to train for, over all environments", "N", field="training.total_timesteps",
        section=WHAT,
    ),
    Option("num-envs", "environments stepped side by side", "N", field="env.num_envs", section=WHAT),
    Option(
        "stop-at-return", "stop when 100 episodes reach this mean return", "X", field="training.stop_at_return",
        section=WHAT,
    ),
    Option("seed", "root of all randomness; 1,2,3 or 0..9 trains one run per seed", "SEEDS", field="seed", section=HOW),
    Option("device", "cpu, cuda, cuda:1, mps or auto", "DEVICE", field="device", section=HOW),
    Option("backend", "torch or jax", "NAME", field="backend", choices=("torch", "jax"), section=HOW),
    Option("lane", "auto, host or compiled", "NAME", field="lane", choices=("auto", "host", "compiled"), section=HOW),
    Option("name", "a name to find the run by", "TEXT", field="name", section=WHERE),
    Option("tags", "labels to find the run by", "A,B", field="tags", section=WHERE),
    Option("output-dir", "folder that run directories are made in", "DIR", field="output_dir", section=WHERE),
)  # fmt: skip

TRAIN = Command(
    name="train",
    summary="train an agent from a preset, a file, or flags alone",
    run="rl_training.cli.run:train_command",
    usage="[PRESET|FILE] [flags]",
    arguments=(0, 1),
    options=(
        CONFIG,
        *SHORT_FORMS,
        Option("jobs", "runs at a time when --seed names several (default: one per core)", "N", section=HOW),
        Option("dry-run", "show the plan, its cost and the resolved config; write nothing", section=LOOK),
        Option(
            "debug", "a quick run of a few rollouts with every check on and a close look at each update", section=LOOK
        ),
        Option("init-from", "start from the weights of another run, at a step if given", "RUN[:STEP]", section=LOOK),
        Option(
            "resume", "continue RUN exactly where it stopped; only --total-timesteps may change", "RUN", section=LOOK
        ),
        Option("trust-plugins", "with --resume: agree to the code of a run that was not made here", section=LOOK),
        replace(ALLOW_CHANGED_CONFIG, section=LOOK),
        JSON,
        HELP,
    ),
    takes_fields=True,
    examples=(
        "rl train ppo/cartpole",
        "rl train ppo/cartpole --seed 1,2,3 --jobs 3",
        "rl train --algo a2c --env-id Acrobot-v1 --total-timesteps 200000",
        "rl train my.yaml --hparams.clip-coef 0.1 --env.normalize-obs",
        'rl train my.yaml --hparams.learning-rate "{type: linear, start: 3e-4, end: 0}"',
    ),
)

EVAL = Command(
    name="eval",
    summary="score a trained agent, or every seed of a group, on fresh episodes",
    run="rl_training.cli.run:eval_command",
    usage="RUN|GROUP [flags]",
    arguments=(1, 1),
    options=(
        Option("checkpoint", "latest, best, or the env steps of a saved one (default latest)", "WHICH"),
        Option("episodes", "episodes to play (default 100)", "N"),
        Option("seed", "seed of the episodes (default: the run's own)", "S"),
        Option("stochastic", "sample actions instead of taking the most likely one"),
        Option("num-envs", "environments stepped side by side; changes the speed, not the result", "N"),
        Option("video", "record an episode, into DIR or the run's videos/", "[DIR]", optional_value=True),
        TRUST,
        ALLOW_CHANGED_CONFIG,
        OUTPUT_DIR,
        JSON,
        HELP,
    ),
    examples=("rl eval latest", "rl eval runs/ppo__CartPole-v1__seed0__20260101-120000 --checkpoint best --video"),
    notes="RUN is a run directory, the start of its name or its --name (if only one fits), or 'latest'. GROUP is a "
    "folder of seeds in <output-dir>/groups, or for 'rl resume' a sweep in <output-dir>/sweeps, named in the same way.",
)

RESUME = Command(
    name="resume",
    summary="continue a stopped run, or the seeds of a group, exactly where they were",
    run="rl_training.cli.run:resume_command",
    usage="RUN|GROUP [flags]",
    arguments=(1, 1),
    options=(
        Option("total-timesteps", "train to this many env steps instead of the run's own budget", "N"),
        Option("jobs", "runs at a time of a group (default: as it was started)", "N"),
        TRUST,
        ALLOW_CHANGED_CONFIG,
        OUTPUT_DIR,
        JSON,
        HELP,
    ),
    examples=(
        "rl resume latest",
        "rl resume latest --total-timesteps 1000000",
        "rl resume runs/groups/ppo__CartPole-v1__20260101-120000",
    ),
    notes=EVAL.notes,
)

SWEEP = Command(
    name="sweep",
    summary="train many configs from one sweep file, each with several seeds",
    run="rl_training.cli.sweep:sweep_command",
    usage="[FILE] [flags]",
    arguments=(0, 1),
    options=(
        CONFIG,
        *SHORT_FORMS,
        Option("jobs", "runs at a time (default: parallel_jobs of the file)", "N"),
        Option("retries", "how often a run that failed is tried again (default: retries of the file)", "N"),
        Option("resume", "go on with a sweep: by path, name, or latest", "SWEEP"),
        Option("trust-plugins", "with --resume: agree to the code of a sweep that was not made here"),
        Option("emit", "slurm: write an array job instead of starting the runs", "WHAT", choices=("slurm",)),
        Option("only", "with --resume: one run by its number, in this process (what the array job does)", "N"),
        Option("dry-run", "show the plan, the trials and a config; write nothing"),
        JSON,
        HELP,
    ),
    takes_fields=True,
    examples=(
        "rl sweep --config configs/sweeps/ppo_sweep.yaml",
        "rl sweep configs/sweeps/ppo_sweep.yaml --total-timesteps 20000 --seed 0..4 --jobs 4",
        "rl sweep --resume latest --retries 1",
        "rl sweep configs/sweeps/ppo_sweep.yaml --emit slurm",
    ),
    notes="The file names a base_config and what its trials change: 'sweep' (all combinations), 'num_trials' with "
    "'sweep' and 'ranges' (random), or 'trials' (a list). Fields given as flags hold for every trial.",
)

TUNE = Command(
    name="tune",
    summary="search for good hyperparameters, scored over several seeds",
    run="rl_training.cli.tune:tune_command",
    usage="[FILE] [flags]",
    arguments=(0, 1),
    options=(
        CONFIG,
        *SHORT_FORMS,
        Option("trials", "trials in all (default: num_trials of the file)", "N"),
        Option("jobs", "trials at a time (default: parallel_jobs of the file)", "N"),
        Option("sampler", "how values are chosen", "NAME", choices=("tpe", "random", "qmc", "gp", "cmaes")),
        Option("pruner", "when a trial is ended early", "NAME", choices=("wilcoxon", "median", "none")),
        Option("resume", "go on with a search: by path, name, or latest", "SEARCH"),
        Option("trust-plugins", "with --resume: agree to the code of a search that was not made here"),
        Option("export-best", "write the config of the best trial", "FILE"),
        Option("dry-run", "show the plan, the search space and the base; write nothing"),
        JSON,
        HELP,
    ),
    takes_fields=True,
    examples=(
        "rl tune --config configs/sweeps/ppo_tune.yaml",
        "rl tune configs/sweeps/ppo_tune.yaml --trials 30 --jobs 4 --export-best best.yaml",
        "rl tune --resume latest --trials 60",
    ),
    notes="The file names a base_config and, if the space that ships for its algorithm will not do, 'ranges' and "
    "'sweep'. Fields given as flags hold for every trial.",
)

PRESETS = Command(
    name="presets",
    summary="list the configs that ship with the package",
    run="rl_training.cli.listings:presets_command",
    usage="[FILTER] [--json]",
    arguments=(0, 1),
    options=(JSON, HELP),
    examples=("rl presets", "rl presets ppo"),
)

ALGORITHMS = Command(
    name="algorithms",
    summary="list the algorithms",
    run="rl_training.cli.listings:algorithms_command",
    usage="[FILTER] [--json]",
    arguments=(0, 1),
    options=(JSON, HELP),
    examples=("rl algorithms", "rl train --algo ppo --help   # with all hyperparameters of ppo"),
)

ENVS = Command(
    name="envs",
    summary="list the environments that can be built here",
    run="rl_training.cli.listings:envs_command",
    usage="[FILTER] [--json]",
    arguments=(0, 1),
    options=(JSON, HELP),
    examples=("rl envs", "rl envs cart"),
)

BENCH = Command(
    name="bench",
    summary="measure what an environment's step costs and how to step it fastest",
    run="rl_training.cli.bench:bench_command",
    usage="ENV|PRESET|FILE [flags]",
    arguments=(1, 1),
    options=(
        Option("num-envs", "environments side by side, one measurement each (default 1,4,16)", "N,N"),
        Option("seconds", "length of a measurement (default 2)", "X"),
        JSON,
        HELP,
    ),
    examples=("rl bench CartPole-v1", "rl bench my_project.envs:GridWorld --num-envs 8", "rl bench my.yaml --json"),
    notes="Random actions, no learning. The advice is for env.vectorization: sync (this process), async (worker "
    "processes) or native (a suite's own vector environment).",
)

NEW_DIR = Option("dir", "folder to write into, made if it is missing (default: this one)", "DIR")
NEW_BACKEND = Option(
    "backend", "what it is written in (default torch; an env: Gymnasium)", "NAME", choices=("torch", "jax")
)
NEW_NOTES = (
    "Writes NAME.py, test_NAME.py and NAME.yaml, which work as they are. Nothing is overwritten. NAME is the name of a "
    "Python module, such as my_idea."
)


def new(kind: str, summary: str) -> Command:
    """`rl new KIND`."""
    return Command(
        name=f"new {kind}",
        summary=summary,
        run="rl_training.cli.new:new_command",
        usage="NAME [--backend torch|jax] [--dir DIR]",
        arguments=(1, 1),
        options=(NEW_BACKEND, NEW_DIR, HELP),
        examples=(f"rl new {kind} my_{kind}", f"rl new {kind} my_{kind} --backend jax --dir ideas"),
        notes=NEW_NOTES,
    )


NEW = (
    new("algorithm", "write a working start for an algorithm of your own"),
    new("network", "write a working start for a network of your own"),
    new("env", "write a working start for an environment of your own"),
)

CONFIG_SHOW = Command(
    name="config show",
    summary="print a config with every default filled in",
    run="rl_training.cli.configs:show_command",
    usage="[PRESET|FILE] [flags]",
    arguments=(0, 1),
    options=(CONFIG, *SHORT_FORMS, JSON, HELP),
    takes_fields=True,
    examples=("rl config show ppo/cartpole", "rl config show --algo a2c > my.yaml"),
)

CONFIG_VALIDATE = Command(
    name="config validate",
    summary="check config and sweep files; all problems at once",
    run="rl_training.cli.configs:validate_command",
    usage="FILE... [--json]",
    arguments=(1, 10_000),
    options=(JSON, HELP),
    examples=("rl config validate my.yaml", "rl config validate configs/*/*.yaml"),
)

CONFIG_MIGRATE = Command(
    name="config migrate",
    summary="rewrite a file of an older version in today's layout",
    run="rl_training.cli.configs:migrate_command",
    usage="FILE [--write]",
    arguments=(1, 1),
    options=(Option("write", "replace the file instead of printing the result"), HELP),
    examples=("rl config migrate old.yaml", "rl config migrate old.yaml --write"),
)

CONFIG_IMPORT_ZOO = Command(
    name="config import-zoo",
    summary="turn hyperparameters of the SB3 Zoo into config files",
    run="rl_training.cli.zoo:import_command",
    usage="FILE [--env ID] [--algo NAME] [--output FILE|DIR]",
    arguments=(1, 1),
    options=(
        Option(
            "env",
            "the one environment to import (default: all that the file names)",
            "ID",
        ),
        Option(
            "algo",
            "ppo, a2c, dqn, sac, td3 or ddpg (default: the file's name says)",
            "NAME",
        ),
        Option(
            "output",
            "file for one config, folder for several (default: print it)",
            "PATH",
        ),
        JSON,
        HELP,
    ),
    examples=(
        "rl config import-zoo ppo.yml --env CartPole-v1 > my.yaml",
        "rl config import-zoo hyperparams/sac.yml --output configs/zoo",
        "rl config import-zoo tuned.yml --algo td3 --env Pendulum-v1 --output td3.yaml",
    ),
    notes="Nothing in the file is evaluated. What has no counterpart is named on stderr and at the top of each config, "
    "with the reason. What the file leaves out is Stable-Baselines3's default. Nothing is overwritten.",
)

COMPLETION = Command(
    name="completion",
    summary="print the completion script of a shell",
    run="rl_training.cli.completion:completion_command",
    usage="bash|zsh|fish",
    arguments=(1, 1),
    options=(HELP,),
    examples=(
        "source <(rl completion bash)                        # in ~/.bashrc",
        "source <(rl completion zsh)                         # in ~/.zshrc, after compinit",
        "rl completion fish > ~/.config/fish/completions/rl.fish",
    ),
)

FIRST = (TRAIN, EVAL, RESUME)
RUNS = (SWEEP, TUNE, *FINDING, *ANALYSIS, *KEEPING)
CONFIGS = (CONFIG_SHOW, CONFIG_VALIDATE, CONFIG_MIGRATE, CONFIG_IMPORT_ZOO)
OTHERS = (PRESETS, ALGORITHMS, ENVS, BENCH, *NEW, *CONFIGS, COMPLETION)
COMMANDS = {command.name: command for command in FIRST + RUNS + OTHERS}

EXIT_CODES = (
    "0 done, 1 failure, 2 usage or config, 3 checked and different, "
    "130 and 143 stopped by SIGINT and SIGTERM, 75 by SIGUSR1 ('rl resume' continues)"
)
