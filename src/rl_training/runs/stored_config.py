"""A config read from disk, and whether it may run: it was created here, the user trusts it, or it is all built-in."""

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
"""Kind and id of the config of a captured update, which belongs to no run."""


@dataclass(frozen=True)
class StoredConfig:
    """The config of a run, a group, a sweep or a captured update, as stored on disk."""

    kind: str
    id: str
    mapping: Mapping[str, Any]
    mark: object
    """The seal stored beside it, if any."""
    subject: str
    """What messages call it: "run 'runs/x'"."""
    source: str
    """The file it was read from."""

    @property
    def identity(self) -> Identity:
        return Identity(self.kind, self.id, seals.digest(self.mapping))

    @property
    def is_own(self) -> bool:
        """Whether it was created here, or on a machine with the same key, and is unchanged since."""
        return seals.is_sealed(self.identity, self.mark)

    def read(self) -> TrainConfig:
        """The config for reading: `${env:NAME}` references are not resolved."""
        return parse_stored(self.mapping, source=self.source)

    def foreign_code(self, *, env_given: bool = False) -> list[str]:
        """Everything it asks for from outside the package."""
        code = foreign_code(self.read(), env_given=env_given)
        named = "\n".join(code)
        return [*code, *(text for text in dict.fromkeys(references(self.mapping)) if text not in named)]

    def consent(self, *, trust_plugins: bool = False, env_given: bool = False, further: Sequence[str] = ()) -> Consent:
        """The consent under which it runs; TrustError if it asks for more than built-in parts without the user's trust.

        `trust_plugins` is the user's consent, which is remembered. `further` lists what else needs consent.
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
        """The config with its secrets resolved, for use inside the context: there only code that the user has consented
        to is imported or called, whatever the config names."""
        consent = self.consent(trust_plugins=trust_plugins, env_given=env_given, further=further)
        with scope(consent):
            yield self.filled(consent)

    def filled(self, consent: Consent) -> TrainConfig:
        """The config with its environment variables resolved, if there is consent; otherwise without."""
        mapping = self.mapping if consent.level == "none" else restore(self.mapping)
        return parse_stored(mapping, source=self.source)


def seal_config(kind: str, id: str, mapping: Mapping[str, Any]) -> str | None:
    """The seal of a config that is about to be stored; None if the config is not the user's own or there is no key."""
    return seals.seal(Identity(kind, id, seals.digest(mapping))) if current().level == "own" else None
