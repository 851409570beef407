"""What each side of a contest runs, to the letter: lists for the docs, and how this package is made to do the same."""

from __future__ import annotations

from typing import Any

Rows = tuple[tuple[str, str, str], ...]


def same(**values: Any) -> Rows:
    """Settings that are equal on both sides."""
    return tuple((name.replace("_", " "), str(value), str(value)) for name, value in values.items())


def ppo_rows(settings: dict[str, Any], num_envs: int) -> Rows:
    """What PPO's settings mean to everybody."""
    per_rollout = f"{num_envs} × {settings['num_steps']} steps"
    epochs = f"{settings['num_epochs']} of {settings['num_minibatches']} minibatches"
    names = ("learning_rate", "gamma", "gae_lambda", "clip_coef", "ent_coef")
    return (
        *same(rollout=per_rollout, epochs=epochs, network="two of 64×64, tanh"),
        *same(**{name: settings[name] for name in names}),
    )


SB3_PPO_ROWS: Rows = (
    ("value loss", "0.5 × ½ squared error", "0.25 × squared error"),
    *same(value_clipping="none", gradient_norm="0.5, of all gradients", Adam="eps 1e-5", advantages="per minibatch"),
    *same(first_weights="orthogonal", time_limit="bootstrapped"),
)


def atari_rows(settings: dict[str, Any], network: str, *, overlap: bool) -> Rows:
    """PPO of both sides on stacks of four frames."""
    rows = settings["num_envs"] * settings["num_steps"]
    minibatch = rows // settings["num_minibatches"]
    newest = "from before the update that runs meanwhile" if overlap else "newest"
    return (
        *same(
            rollout=f"{settings['num_envs']} × {settings['num_steps']} steps",
            epochs=f"{settings['num_epochs']} of {settings['num_minibatches']} minibatches of {minibatch}",
            network=f"{network}, ReLU, one for actor and critic",
        ),
        *same(**{name: settings[name] for name in ("learning_rate", "gamma", "gae_lambda", "clip_coef", "ent_coef")}),
        ("value loss", "1 × ½ squared error", "0.5 × squared error"),
        *same(value_clipping="none", gradient_norm="0.5, of all gradients", Adam="eps 1e-5"),
        *same(advantages="per minibatch", first_weights="orthogonal", rewards="clipped to ±1", frame_skip=4),
        ("weights that act", newest, "newest"),
        ("frames", "ALE's vector: 84×84 by areas, maximum of two", "AtariWrapper: 84×84 by areas, maximum of two"),
        ("start of a game", "FIRE, then 0 to 29 no-ops; black stack", "1 to 30 no-ops, FIRE; the first frame repeated"),
    )


def recurrent_rows(settings: dict[str, Any], layers: list[int], memory: str) -> Rows:
    """PPO with memory of both sides."""
    per_rollout = f"{settings['num_envs']} × {settings['num_steps']} steps"
    before, behind = (f"{layers[0]} tanh, then ", f", then {layers[0]} tanh") if layers else ("", "")
    size = settings["memory"]
    return (
        *same(rollout=per_rollout, epochs=f"{settings['num_epochs']} of {settings['num_minibatches']} minibatches"),
        ("networks of actor and critic", f"{before}{memory.upper()} of {size}", f"LSTM of {size}{behind}"),
        *same(learning_rate="2e-3 to 0, linear", gamma=settings["gamma"], gae_lambda=settings["gae_lambda"]),
        *same(clip_coef="0.2 to 0.002, linear", ent_coef=settings["ent_coef"]),
        ("value loss", "1 × ½ squared error", "0.5 × squared error"),
        *same(value_clipping="none", gradient_norm="0.5, of all gradients", Adam="eps 1e-5", time_limit="bootstrapped"),
        *same(normalisation="observations and rewards"),
        ("sequences", "32 steps, memories recomputed", "up to 128 steps, cut at episode starts; stored memories"),
        ("advantages", "per minibatch", "per minibatch"),
        ("first weights of the memories", "orthogonal, biases 0", "uniform"),
    )


AS_REJAX = {"clip_vf": 0.2, "adam_eps": 1e-8}
"""What rejax does beside the settings: values are clipped as the policy is, and Adam has its usual epsilon."""
REJAX_ROWS: Rows = (
    *same(value_loss="0.5 × ½ squared error", value_clipping="0.2", Adam="eps 1e-8", advantages="per minibatch"),
    ("gradients", "scaled to a norm of 0.5, of all together", "each number cut to ±0.5"),
    ("first weights", "orthogonal", "LeCun normal"),
    ("time limit", "bootstrapped", "counts as an end"),
)
"""The last three are what settings cannot make equal."""

# -- learning from replay ---------------------------------------------------------------------------------------------

EXPLORATION_SHARE = 0.1
"""Of a run, over which epsilon falls in the DQN of Stable-Baselines3 and SBX."""


def as_the_peer(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The hyperparameters with which this package runs what the peers run by default."""
    if settings["algo"] == "dqn":
        per_target = round(10_000 * settings["updates_per_step"])
        epsilon_steps = round(EXPLORATION_SHARE * settings["total_timesteps"])
        return {"double": False, "target_every_updates": per_target, "epsilon_steps": epsilon_steps, **more}
    return {"exploration_noise": 0.0} if settings["algo"] == "td3" else {}


def off_policy_rows(settings: dict[str, Any], *, jax: bool) -> Rows:
    """DQN, SAC or TD3 of both sides."""
    rows = same(
        learning_rate=settings["learning_rate"],
        batch=settings["batch_size"],
        updates_per_step=settings["updates_per_step"],
        gamma=0.99,
        buffer=f"{settings['buffer_size']:,}",
        learning_starts=settings["learning_starts"],
        Adam="eps 1e-8",
    )
    if settings["algo"] == "dqn":
        return (
            *rows,
            *same(targets="plain, no double Q", loss="Huber", gradient_norm="not clipped" if jax else 10),
            ("target network", "copied every 1,000 updates", "copied every 10,000 steps"),
            ("epsilon", "1 to 0.05 in a tenth of the run", "1 to 0.05 in a tenth of the run"),
        )
    tau, critics = 0.005, "½ squared errors of two, summed"
    if settings["algo"] == "sac":
        return *rows, *same(tau=tau, critics=critics, temperature="learnt, target −1")
    theirs = critics if jax else "squared errors of two, summed"
    noise = "0.2 within ±0.5 on targets, none on actions"
    return *rows, ("critics", critics, theirs), *same(tau=tau, actor="every second update", noise=noise)
