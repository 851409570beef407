"""A config that was found on a disk, and whether it may run: made here, agreed to, or built-in parts alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rl_training.config.loading import parse_stored
from rl_training.config.schema import TrainConfig
from rl_training.runs.foreign_code import foreign_code, references
from rl_training.runs.redaction import restore
from rl_training.trust import seals
from rl_training.trust.consent import OWN, Consent, current, scope
from rl_training.trust.seals import Identity

CAPTURE = "captured update"
"""Kind and id of the config in the file of a captured update, which belongs to no run."""


@dataclass(frozen=True)
class StoredConfig:
    """The config of a run, of a group or sweep, or of a captured update, as it is on the disk."""

    kind: str
    id: str
    mapping: Mapping[str, Any]
    mark: object
    """The seal that lies beside it, if any."""
    subject: str
    """What messages call it: "run 'runs/x'"."""
    source: str
    """The file it was read from."""

    @property
    def identity(self) -> Identity:
        return Identity(self.kind, self.id, seals.digest(self.mapping))

    @property
    def is_own(self) -> bool:
        """Whether it was made here, or where the same key is, and not changed since."""
        return seals.is_sealed(self.identity, self.mark)

    def read(self) -> TrainConfig:
        """To look at it: references to the environment stay what they are."""
        return parse_stored(self.mapping, source=self.source)

    def foreign_code(self, *, env_given: bool = False) -> list[str]:
        """What it asks for that is not part of the package."""
        code = foreign_code(self.read(), env_given=env_given)
        named = "\n".join(code)
        return [*code, *(text for text in dict.fromkeys(references(self.mapping)) if text not in named)]

    def consent(self, *, trust_plugins: bool = False, env_given: bool = False, further: Sequence[str] = ()) -> Consent:
        """Under which it runs; TrustError where it asks for more than built-in parts and nobody has agreed to that.

        `trust_plugins` is the user's agreement, which is remembered. `further` is what else would need one.
        """
        if self.is_own:
            return OWN
        if seals.is_remembered(self.identity):
            return Consent("trusted", self.subject)
        code = [*self.foreign_code(env_given=env_given), *further]
        if trust_plugins:
            seals.remember(self.identity, code)
            return Consent("trusted", self.subject)
        refusing = Consent("none", self.subject)
        if code:
            raise refusing.refusal(code)
        return refusing

    @contextmanager
    def to_run(
        self, *, trust_plugins: bool = False, env_given: bool = False, further: Sequence[str] = ()
    ) -> Iterator[TrainConfig]:
        """The config with its secrets filled in, to be run inside: there nothing is imported or called that nobody has
        agreed to, whatever the config names."""
        consent = self.consent(trust_plugins=trust_plugins, env_given=env_given, further=further)
        with scope(consent):
            yield self.filled(consent)

    def filled(self, consent: Consent) -> TrainConfig:
        """With what it takes from the environment, which only a config that somebody agreed to is given."""
        mapping = self.mapping if consent.level == "none" else restore(self.mapping)
        return parse_stored(mapping, source=self.source)


def seal_config(kind: str, id: str, mapping: Mapping[str, Any]) -> str | None:
    """The seal of a config that is about to be stored here; None for one that is not the user's own, and where there is
    no key."""
    return seals.seal(Identity(kind, id, seals.digest(mapping))) if current().level == "own" else None
