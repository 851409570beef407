"""Keeps secrets out of run directories: each one is written as `${env:NAME}` and read from the environment at resume.

A secret is a text under a key that names one (see `secret_names`), the userinfo of a URL, the value of an environment
variable with such a name, or of any variable that the config refers to as `${env:NAME}`: a reference stays one, and is
filled in only to build a run. Numbers, booleans and null never are: `max_tokens: 5` stays what it is.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
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

IN_SIGHT = ("output_dir",)
"""Fields whose references stay but whose values are no secret: the run directory lies there."""
_seen: dict[str, str] = {}
"""Secrets of the configs that this process has read, each with its variable: tracebacks on the console hide them."""


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

    restored = _map_strings(value, lambda text: REFERENCE.sub(lookup, text))
    if missing:
        names = ", ".join(sorted(missing))
        raise ConfigError(f"the config reads secrets from the environment, and these are not set: {names}; export them")
    return restored


def with_secrets(cfg: TrainConfig) -> TrainConfig:
    """A config to run: every `${env:NAME}` in it replaced by that variable's text."""
    mapping = config_to_mapping(cfg)
    Redactor().mapping(mapping)  # from here on the console hides what it holds, also before there is a run
    restored = restore(mapping)
    return cfg if restored == mapping else parse_config(restored, source="config with its secrets")


def console_redactor() -> Redactor:
    """Hides what any config of this process holds, and the variables with telling names."""
    redactor = Redactor()
    redactor.add(_seen)
    return redactor


def forget() -> None:
    """Start anew with what the console hides: a command is over."""
    _seen.clear()


class Redactor:
    """Replaces secrets by references. What `mapping` finds in a config is then also hidden in texts and arguments."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._names: dict[str, str] = {}
        """Secret value to the variable that stands for it."""
        self._derived: dict[str, str] = {}
        """Variable that nobody has set yet to the place in the config it was named after."""
        for name, value in self._environ.items():
            if is_secret_key(name) and not is_common(value):
                self._names.setdefault(value, name)
        self._pattern = self._compile()

    @property
    def needed(self) -> dict[str, str]:
        """Variables a resume will need that are not set now, each with the place in the config it stands for."""
        return dict(self._derived)

    @property
    def needed_values(self) -> dict[str, str]:
        """The same variables with their secrets: what a process that reads the redacted config must find exported."""
        return {name: value for value, name in self._names.items() if name in self._derived}

    def add(self, names: Mapping[str, str]) -> None:
        """Hide these secrets too, each as the variable that it is mapped to."""
        for secret, name in names.items():
            self._names.setdefault(secret, name)
        self._pattern = self._compile()

    def mapping(self, tree: Any) -> Any:
        """A copy of a config mapping without secrets."""
        before = set(self._names)
        for path, text in _strings(tree):
            self._learn(path, text)
        self._pattern = self._compile()
        _seen.update((secret, name) for secret, name in self._names.items() if secret not in before)
        return self._redact_tree(tree, ())

    def text(self, text: str, *, code: bool = False) -> str:
        """A text without secrets. In `code`, only quoted literals count as values: `token = next_token()` stays."""
        if may_hold_secret(text):
            text = text if code else HEADER.sub(self._redact_match, text)
            text = self._redact_assignments(text, code)
            text = text if code else BEARER.sub(self._redact_match, text)
        return self.values(text)

    def values(self, text: str) -> str:
        """A text without the secrets that are known and without accounts in URLs; `token: x` stays."""
        return self._redact_userinfo(self._redact_values(text, short=True), "URL_USERINFO")

    def traceback(self, text: str) -> str:
        """A traceback without secrets: the indented frames are code, what the error says is text."""
        whole = self.values(text)  # first, because a secret may have several lines
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
        """One warning for all secrets that only the config holds: a resume finds them only if they are exported."""
        if not self._derived:
            return
        names = ", ".join(f"{name} (for {place})" for name, place in self._derived.items())
        warnings.warn(
            f"secrets are never written to a run directory; to resume or evaluate this run, export {names}. "
            "Better: export them now and write ${env:NAME} in the config",
            UserWarning,
            stacklevel=3,
        )

    def _learn(self, path: tuple[str, ...], text: str) -> None:
        if not text:
            return
        if names := REFERENCE.findall(text):
            for name in names if path[:1] not in [(field,) for field in IN_SIGHT] else ():
                if not is_common(self._environ.get(name, "")):
                    self._names.setdefault(self._environ[name], name)
            return
        if any(is_secret_key(key) for key in path):
            if text not in self._names:
                self._names[text] = self._name_for(text, path)
            return
        for match in USERINFO.finditer(text):
            whole = next((name for name, value in self._environ.items() if value == text), None)
            secret = text if whole else match[2]
            if secret not in self._names and not any(
                value in secret for value in self._names if len(value) >= MIN_LENGTH
            ):
                self._names[secret] = whole or self._name_for(match[2], (*path, "userinfo"))

    def _name_for(self, secret: str, path: tuple[str, ...]) -> str:
        """The variable that already holds `secret`, or one named after its place that does not exist yet."""
        holder = next((name for name, value in self._environ.items() if value == secret), None)
        if holder is not None:
            return holder
        base = name = variable("_".join(path))
        count = 1
        while name in self._environ or name in self._derived:
            count += 1
            name = f"{base}_{count}"
        self._derived[name] = ".".join(path)
        return name

    def _redact_tree(self, node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, Mapping):
            return {key: self._redact_tree(value, (*path, str(key))) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(self._redact_tree(value, (*path, str(index))) for index, value in enumerate(node))
        if not isinstance(node, str):
            return node
        if node in self._names and (len(node) >= MIN_LENGTH or any(is_secret_key(key) for key in path)):
            return reference(self._names[node])
        return self._redact_userinfo(self._redact_values(node, short=False), variable("_".join((*path, "userinfo"))))

    def _redact_assignments(self, text: str, code: bool) -> str:
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

    def _redact_values(self, text: str, *, short: bool) -> str:
        spelling_names, pattern = self._pattern
        if pattern is None or not any(spelling in text for spelling in spelling_names):
            return text

        def replace(match: re.Match[str]) -> str:
            name = spelling_names.get(match[0])
            if name is None or (not short and len(match[0]) < MIN_LENGTH):
                return match[0]
            return reference(name)

        return pattern.sub(replace, text)

    def _compile(self) -> tuple[dict[str, str], re.Pattern[str] | None]:
        spelling_names: dict[str, str] = {}
        for value, name in self._names.items():
            for spelling in spellings(value):
                spelling_names.setdefault(spelling, name)
        if not spelling_names:
            return {}, None
        longest_first = sorted(spelling_names, key=len, reverse=True)
        # References come first, so that one secret never rewrites the name that stands for another.
        parts = [REFERENCE.pattern.replace("(", "(?:"), *map(bounded, longest_first)]
        return spelling_names, re.compile("|".join(parts))


def _is_code(name: str) -> bool:
    return name.endswith((".py", ".pyi", ".pyx", ".c", ".cc", ".cpp", ".h", ".hpp", ".rs", ".js", ".ts"))


def _strings(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _strings(value, (*path, str(key)))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _strings(value, (*path, str(index)))


def _map_strings(node: Any, function: Any) -> Any:
    if isinstance(node, str):
        return function(node)
    if isinstance(node, Mapping):
        return {key: _map_strings(value, function) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_map_strings(value, function) for value in node)
    return node
