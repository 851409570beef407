"""Keeps secrets out of run directories: each one is written as `${env:NAME}` and read from the environment at resume.

A secret is a text under a key that names one (see `secret_names.py`), the userinfo of a URL, the value of an
environment variable with such a name, or of any variable that the config refers to as `${env:NAME}`: a reference is
stored as it is and resolved only when a run is built. Numbers, booleans and null are never secrets: `max_tokens: 5`
stays.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_training.config.loading import config_to_mapping, parse_config
from rl_training.config.schema import TrainConfig
from rl_training.runs.secret_names import (
    BEARER,
    HEADER,
    KEY,
    MIN_LENGTH,
    PLAIN,
    REFERENCE,
    USERINFO,
    VALUE,
    bounded,
    is_common,
    is_secret_key,
    may_hold_secret,
    reference,
    spellings,
    variable,
)
from rl_training.types import ConfigError

__all__ = ["Redactor", "console_redactor", "forget", "is_secret_key", "restore", "with_secrets"]

Path = tuple[str, ...]
"""Keys and list indices that lead to a value of a config."""
PUBLIC_FIELDS = ("output_dir",)
"""Fields whose references are stored but whose values are not secret: the path of the run directory contains them."""
_seen: dict[str, str] = {}
"""Secrets of all configs this process has read, with their variables: tracebacks on the console hide them."""


def restore(value: Any, environ: Mapping[str, str] | None = None) -> Any:
    """A copy of `value` with every `${env:NAME}` replaced; ConfigError names all variables that are not set."""
    environ = os.environ if environ is None else environ
    missing: set[str] = set()

    def lookup(match: re.Match[str]) -> str:
        if match[1] not in environ:
            missing.add(match[1])
            return match[0]
        if environ is os.environ and not is_common(environ[match[1]]):
            _seen.setdefault(environ[match[1]], match[1])
        return environ[match[1]]

    restored = _map_strings(value, lambda path, text: REFERENCE.sub(lookup, text))
    if missing:
        names = ", ".join(sorted(missing))
        raise ConfigError(f"the config reads secrets from the environment, and these are not set: {names}; export them")
    return restored


def with_secrets(cfg: TrainConfig) -> TrainConfig:
    """A config to run: every `${env:NAME}` in it replaced by the value of that variable."""
    mapping = config_to_mapping(cfg)
    Redactor().mapping(mapping)  # from now on the console hides its secrets, even before there is a run directory
    restored = restore(mapping)
    return cfg if restored == mapping else parse_config(restored, source="config with its secrets")


def console_redactor() -> Redactor:
    """Hides the secrets of every config this process has read, and environment variables with secret names."""
    redactor = Redactor()
    redactor.add(_seen)
    return redactor


def forget() -> None:
    """Clear the secrets that the console hides; called when a command has ended."""
    _seen.clear()


class Redactor:
    """Replaces secrets by references. Secrets that `mapping` finds in a config are then also hidden in texts."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._names: dict[str, str] = {}
        """Secret value to the variable that replaces it."""
        self._derived: dict[str, str] = {}
        """Variables that are not set yet, with the place in the config that each is named after."""
        for name, value in self._environ.items():
            if is_secret_key(name) and not is_common(value):
                self._names.setdefault(value, name)
        self._values = _KnownValues(self._names)

    @property
    def needed(self) -> dict[str, str]:
        """Variables that a resume needs and that are not set now, with the place in the config they stand for."""
        return dict(self._derived)

    @property
    def needed_values(self) -> dict[str, str]:
        """The same variables with their secrets: what a process that reads the redacted config needs exported."""
        return {name: value for value, name in self._names.items() if name in self._derived}

    def add(self, names: Mapping[str, str]) -> None:
        """Also hide these secrets, each behind the variable it is mapped to."""
        for secret, name in names.items():
            self._names.setdefault(secret, name)
        self._values = _KnownValues(self._names)

    def mapping(self, tree: Any) -> Any:
        """A copy of a config mapping without secrets."""
        before = set(self._names)
        _map_strings(tree, self._learn)
        self._values = _KnownValues(self._names)
        _seen.update((secret, name) for secret, name in self._names.items() if secret not in before)
        return _map_strings(tree, self._redact_leaf)

    def text(self, text: str, *, code: bool = False) -> str:
        """A text without secrets. In `code`, only quoted literals count as values: `token = next_token()` stays."""
        if may_hold_secret(text):
            text = text if code else HEADER.sub(self._redact_match, text)
            text = self._redact_assignments(text, code)
            text = text if code else BEARER.sub(self._redact_match, text)
        return self.values(text)

    def values(self, text: str) -> str:
        """A text without known secrets and without userinfo in URLs; `token: x` stays."""
        return self._redact_userinfo(self._values.replaced(text), "URL_USERINFO")

    def traceback(self, text: str) -> str:
        """A traceback without secrets: the indented frames are code, the message of the error is text."""
        whole = self.values(text)  # before splitting into lines, because a secret may span several
        return "".join(self.text(line, code=line.startswith("  ")) for line in whole.splitlines(keepends=True))

    def diff(self, diff: str) -> str:
        """A `git diff` without secrets: source code keeps its expressions, other files are plain text."""
        sections = re.split(r"(?m)^(?=diff --git )", diff)
        return "".join(self.text(section, code=_is_code(section.partition("\n")[0])) for section in sections)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line without secrets, for `--password x`, `--password=x`, `env.password=x` and URLs."""
        redacted: list[str] = []
        key = ""
        for argument in argv:
            if key and not argument.startswith("--") and not PLAIN.fullmatch(argument):
                redacted.append(reference(self._names.get(argument) or variable(key)))
            else:
                redacted.append(self.text(argument))
            flag = argument.startswith("--") and "=" not in argument
            key = argument.lstrip("-") if flag and is_secret_key(argument) else ""
        return redacted

    def warn_about_needed(self) -> None:
        """One warning for all secrets that exist only in the config: a resume needs them exported."""
        if not self._derived:
            return
        names = ", ".join(f"{name} (for {place})" for name, place in self._derived.items())
        warnings.warn(
            f"secrets are never written to a run directory; to resume or evaluate this run, export {names}. "
            "Better: export them now and write ${env:NAME} in the config",
            UserWarning,
            stacklevel=3,
        )

    def _learn(self, path: Path, text: str) -> str:
        """Note the secrets in one text of a config; returns the text as it is."""
        if names := REFERENCE.findall(text):
            is_public = bool(path) and path[0] in PUBLIC_FIELDS
            for name in () if is_public else names:
                if not is_common(self._environ.get(name, "")):
                    self._names.setdefault(self._environ[name], name)
        elif text and any(is_secret_key(key) for key in path):
            if text not in self._names:
                self._names[text] = self._name_for(text, path)
        else:
            for match in USERINFO.finditer(text):
                whole = self._variable_holding(text)
                secret = text if whole else match[2]
                contains_known = any(value in secret for value in self._names if len(value) >= MIN_LENGTH)
                if secret not in self._names and not contains_known:
                    self._names[secret] = whole or self._name_for(match[2], (*path, "userinfo"))
        return text

    def _variable_holding(self, value: str) -> str | None:
        return next((name for name, held in self._environ.items() if held == value), None)

    def _name_for(self, secret: str, path: Path) -> str:
        """The variable that already holds `secret`, or an unused name derived from its place in the config."""
        if (holder := self._variable_holding(secret)) is not None:
            return holder
        base = name = variable("_".join(path))
        count = 1
        while name in self._environ or name in self._derived:
            count += 1
            name = f"{base}_{count}"
        self._derived[name] = ".".join(path)
        return name

    def _redact_leaf(self, path: Path, text: str) -> str:
        """One text of a config. A short secret is replaced only under a secret key: elsewhere it is likely a word."""
        if text in self._names and (len(text) >= MIN_LENGTH or any(is_secret_key(key) for key in path)):
            return reference(self._names[text])
        text = self._values.replaced(text, min_length=MIN_LENGTH)
        return self._redact_userinfo(text, variable("_".join((*path, "userinfo"))))

    def _redact_assignments(self, text: str, code: bool) -> str:
        """`password: x` and `token = "x"`; in code only quoted values."""
        pieces, done, position = [], 0, 0
        while match := KEY.search(text, position):
            position = match.end()
            value = VALUE.match(text, position) if is_secret_key(match[1]) else None
            if value is not None and not (code and value[0][0] not in "\"'"):
                pieces += [text[done:position], self._redact_value(match[1], value[0])]
                done = position = value.end()
        return "".join([*pieces, text[done:]])

    def _redact_match(self, match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}{self._redact_value(match[1], match[3])}"

    def _redact_value(self, key: str, value: str) -> str:
        quote = value[0] if value[0] in "\"'" and value[0] == value[-1] and len(value) > 1 else ""
        inner = value[1:-1] if quote else value
        if PLAIN.fullmatch(inner) or REFERENCE.search(inner) or inner.startswith(("${", "[", "{")):
            return value
        return f"{quote}{reference(self._names.get(inner) or variable(key))}{quote}"

    def _redact_userinfo(self, text: str, name: str) -> str:
        if "@" not in text:
            return text

        def replace(match: re.Match[str]) -> str:
            if REFERENCE.search(match[2]):
                return match[0]
            return f"{match[1]}{reference(self._names.get(match[2], name))}@"

        return USERINFO.sub(replace, text)


class _KnownValues:
    """Secret values to find in texts, in each of their spellings, with the variable that replaces each."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names: dict[str, str] = {}
        for value, name in names.items():
            for spelling in spellings(value):
                self.names.setdefault(spelling, name)
        # references come first, so that no secret matches inside a reference to another
        alternatives = [REFERENCE.pattern.replace("(", "(?:")]
        alternatives += [bounded(spelling) for spelling in sorted(self.names, key=len, reverse=True)]
        self.pattern = re.compile("|".join(alternatives))

    def replaced(self, text: str, *, min_length: int = 0) -> str:
        """The text with a reference in place of each value of at least `min_length` characters."""
        if not any(spelling in text for spelling in self.names):
            return text

        def replace(match: re.Match[str]) -> str:
            name = self.names.get(match[0])
            return match[0] if name is None or len(match[0]) < min_length else reference(name)

        return self.pattern.sub(replace, text)


def _is_code(name: str) -> bool:
    return name.endswith((".py", ".pyi", ".pyx", ".c", ".cc", ".cpp", ".h", ".hpp", ".rs", ".js", ".ts"))


def _map_strings(node: Any, function: Callable[[Path, str], str], path: Path = ()) -> Any:
    """A copy of a tree with `function(path, text)` in place of each text."""
    if isinstance(node, str):
        return function(path, node)
    if isinstance(node, Mapping):
        return {key: _map_strings(value, function, (*path, str(key))) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_map_strings(value, function, (*path, str(index))) for index, value in enumerate(node))
    return node
