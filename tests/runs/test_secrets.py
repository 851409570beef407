"""Secrets are found everywhere, written as references and restored; ordinary configs are unchanged."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rl_training.config.schema import EnvConfig, TrainConfig
from rl_training.runs.redaction import Redactor, is_secret_key, restore, with_secrets
from rl_training.types import ConfigError

SECRET_KEYS = (
    *("token", "HF_TOKEN", "accessToken", "auth-token", "tokens", "secret", "client_secret", "AWS_SECRET_ACCESS_KEY"),
    *(
        "password",
        "PGPASSWORD",
        "db.password",
        "passwd",
        "api_key",
        "apikey",
        "API-KEY",
        "WANDB_API_KEY",
        "RL_TRAINING_TRUST_KEY",
        "private_key",
    ),
    *("auth", "basicAuth", "SSH_AUTH_SOCK", "oauth", "Authorization", "bearer", "bearers", "credential", "CREDENTIALS"),
    *("awsCredentials", "cookie", "session-cookies", "access_key", "accessKeyId", "AWS_ACCESS_KEY_ID", "accesskey"),
    *("webhook", "slack.webhooks", "slackWebHook", "dsn", "SENTRY_DSN", "db_dsns", "HFTOKEN", "APIKey", "token2"),
)


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_keys_of_secrets(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        *("tokenizer", "TOKENIZERS_PARALLELISM", "tokenise", "normalize", "api", "key", "pass", "passes", "monkey"),
        *("author", "authors", "GIT_AUTHOR_NAME", "authority", "XAUTHORITY", "bearing", "forbearer_x", "cookiecutter"),
        *(
            "accredited",
            "incredible",
            "hooks",
            "web",
            "access",
            "keyboard",
            "secretary",
            "detokenized",
            "compass_word_",
        ),
    ],
)
def test_keys_of_other_things(key: str) -> None:
    assert not is_secret_key(key)


ORDINARY: list[Any] = [
    {"max_tokens": 5, "token_dropout": 0.1, "use_token": True, "password": None, "secret": ""},
    {"tokenizer": "bert-base-uncased", "normalize": "layer", "env_id": "ALE/Pong-v5"},
    {"algo": "my_package.module:Algorithm", "output_dir": "/data/runs", "tags": ["a", "b"], "lr": 3e-4},
    {"url": "https://example.org:8080/path?x=1", "mail": "a@example.org", "ssh": "git@example.org:a/b.git"},
]


@pytest.mark.parametrize("config", ORDINARY, ids=str)
def test_ordinary_configs_stay_as_they_are(config: Any) -> None:
    environ = {"MAX_TOKENS": "5", "USE_SECRET": "true", "TOKENIZERS_PARALLELISM": "false", "LIMIT_TOKENS": "100000"}
    redactor = Redactor(environ)
    assert redactor.mapping(config) == config
    assert redactor.needed == {}
    redactor.warn_about_needed()


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ({"password": "hunter2"}, {"DB": "hunter2"}, {"password": "${env:DB}"}),
        ({"a": {"b": {"api_key": "k"}}}, {}, {"a": {"b": {"api_key": "${env:A_B_API_KEY}"}}}),
        ({"secrets": {"x": ["one", "two"]}}, {}, {"secrets": {"x": ["${env:SECRETS_X_0}", "${env:SECRETS_X_1}"]}}),
        ({"note": "use abcdef99!"}, {"MY_TOKEN": "abcdef99"}, {"note": "use ${env:MY_TOKEN}!"}),
        ({"url": "https://me:pw@host/x"}, {}, {"url": "https://${env:URL_USERINFO}@host/x"}),
        ({"url": "https://me:pw@host/x"}, {"LINK": "https://me:pw@host/x"}, {"url": "${env:LINK}"}),
        ({"url": "https://me:longword@host"}, {"A_SECRET": "longword"}, {"url": "https://me:${env:A_SECRET}@host"}),
        ({"token": "Bearer ${env:MINE}"}, {}, {"token": "Bearer ${env:MINE}"}),
        ({"token": "x1"}, {"TOKEN": "other"}, {"token": "${env:TOKEN_2}"}),
        ({"a-token": "x1", "a_token": "x2"}, {}, {"a-token": "${env:A_TOKEN}", "a_token": "${env:A_TOKEN_2}"}),
        (
            {"host": "${env:DB_HOST}", "note": "at db-7.example.org"},
            {"DB_HOST": "db-7.example.org"},
            {"host": "${env:DB_HOST}", "note": "at ${env:DB_HOST}"},
        ),
        ({"webhook": "https://h/T/B"}, {}, {"webhook": "${env:WEBHOOK}"}),
        (
            {"author": "Ada Lovelace", "authority": "x.example.org"},
            {},
            {"author": "Ada Lovelace", "authority": "x.example.org"},
        ),
        ({"1token": "x1"}, {}, {"1token": "${env:_1TOKEN}"}),
    ],
    ids=str,
)
def test_secrets_become_references(config: Any, environ: dict[str, str], expected: Any) -> None:
    redactor = Redactor(environ)
    public = redactor.mapping(config)
    assert public == expected
    values = {"MINE": "x", **environ}
    for name, place in redactor.needed.items():
        values[name] = _value_at(config, place)
    assert restore(public, values) == restore(config, values)


def _value_at(config: Any, place: str) -> str:
    for part in place.removesuffix(".userinfo").split("."):
        config = config[int(part)] if isinstance(config, list) else config[part]
    text = str(config)
    return text.partition("://")[2].partition("@")[0] if place.endswith(".userinfo") else text


def test_tuples_stay_tuples() -> None:
    assert Redactor({}).mapping({"tags": ("a", "b"), "password": ("x",)}) == {
        "tags": ("a", "b"),
        "password": ("${env:PASSWORD_0}",),
    }


def test_what_a_resume_will_need_is_said_once() -> None:
    redactor = Redactor({})
    redactor.mapping({"env": {"kwargs": {"password": "hunter2", "api_key": "k"}}})
    with pytest.warns(
        UserWarning, match=r"export ENV_KWARGS_PASSWORD \(for env\.kwargs\.password\), ENV_KWARGS_API_KEY"
    ):
        redactor.warn_about_needed()


def test_restoring_without_the_variables_names_all_of_them() -> None:
    with pytest.raises(ConfigError, match=r"not set: A, C; export them"):
        restore({"x": "${env:C}", "y": ["${env:A}", "${env:B}"]}, {"B": "b"})


def test_a_config_with_references_is_filled_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    cfg = TrainConfig(env=EnvConfig(kwargs={"password": "${env:DB_PASSWORD}", "size": 3}))
    assert with_secrets(cfg).env.kwargs == {"password": "hunter2", "size": 3}
    plain = TrainConfig()
    assert with_secrets(plain) is plain
    monkeypatch.delenv("DB_PASSWORD")
    with pytest.raises(ConfigError, match=r"not set: DB_PASSWORD; export them"):
        with_secrets(cfg)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--password", "hunter2", "--seed", "3"], ["--password", "${env:PASSWORD}", "--seed", "3"]),
        (["--env.kwargs.api-key=abc"], ["--env.kwargs.api-key=${env:ENV_KWARGS_API_KEY}"]),
        (["--max-tokens", "5", "--use-token", "--debug"], ["--max-tokens", "5", "--use-token", "--debug"]),
        (["env.kwargs.secret='a b'"], ["env.kwargs.secret='${env:ENV_KWARGS_SECRET}'"]),
        (['--env.kwargs={"password": "a"}'], ['--env.kwargs={"password": "${env:PASSWORD}"}']),
        (["--url", "ftp://u:p@h/"], ["--url", "ftp://${env:URL_USERINFO}@h/"]),
        (["--name", "sk-12345678"], ["--name", "${env:OPENAI_API_KEY}"]),
        (["--tokenizer", "bert"], ["--tokenizer", "bert"]),
    ],
    ids=str,
)
def test_command_lines(argv: list[str], expected: list[str]) -> None:
    assert Redactor({"OPENAI_API_KEY": "sk-12345678"}).argv(argv) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-1", "Authorization: ${env:AUTHORIZATION}"),
        ("Cookie: a=1; session=xyz\nHost: h", "Cookie: ${env:COOKIE}\nHost: h"),
        ("{'Authorization': 'Bearer abc'}", "{'Authorization': '${env:AUTHORIZATION}'}"),
        ("sent with bearer eyJhbGciOi.x1", "sent with bearer ${env:BEARER}"),
        ("auth=Basic dXNlcjpw, retry", "auth=${env:AUTH}, retry"),
        ("the bearer of this ticket", "the bearer of this ticket"),
        ("author: Ada, authority: none of it", "author: Ada, authority: none of it"),
        ("x=1;token=abc;y=2", "x=1;token=${env:TOKEN}"),
        ("url=dsn=postgres://h/db", "url=dsn=${env:DSN}"),
        ("env:\n  password: a b", "env:\n  password: ${env:PASSWORD} b"),
    ],
)
def test_words_of_secrets_in_texts(text: str, expected: str) -> None:
    assert Redactor({}).text(text) == expected


def test_a_traceback_keeps_its_code_and_loses_its_secrets() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "env.py", line 3, in reset\n'
        "    token = next_token(tokens)\n"
        '    login("me", password="hunter2")\n'
        "OSError: login failed: password=hunter3, key secret-of-config\n"
    )
    redactor = Redactor({"MY_API_KEY": "secret-of-config"})
    assert redactor.traceback(text) == (
        text.replace("hunter2", "${env:PASSWORD}")
        .replace("hunter3", "${env:PASSWORD}")
        .replace("secret-of-config", "${env:MY_API_KEY}")
    )


def test_an_output_folder_by_reference_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor({"SCRATCH": "/scratch/alice"})
    tree = {"output_dir": "${env:SCRATCH}/runs"}
    assert redactor.mapping(tree) == tree
    assert redactor.text("written to /scratch/alice/runs") == "written to /scratch/alice/runs"


def test_yaml_text_with_comments() -> None:
    text = 'seed: 1  # password: old1\nenv:\n  password: "a b"\n  token: null\n  max_tokens: 5\n  api_key: x, y\n'
    assert Redactor({}).text(text) == (
        'seed: 1  # password: ${env:PASSWORD}\nenv:\n  password: "${env:PASSWORD}"\n  token: null\n  max_tokens: 5\n'
        "  api_key: ${env:API_KEY}, y\n"
    )


def test_short_secrets_of_a_config_are_hidden_in_its_text_in_any_form() -> None:
    redactor = Redactor({})
    redactor.mapping({"env": {"kwargs": {"passwords": ["abc", "d-e"], "level": "abcd"}}})
    text = redactor.text("env: {kwargs: {passwords: [abc, 'd-e'], level: abcd}}")
    assert text == (
        "env: {kwargs: {passwords: [${env:ENV_KWARGS_PASSWORDS_0}, '${env:ENV_KWARGS_PASSWORDS_1}'], level: abcd}}"
    )


DIFF = """diff --git a/agent.py b/agent.py
--- a/agent.py
+++ b/agent.py
-    token = next_token(tokens)
+    token = self.token
+    API_KEY = "sk-live-1"
diff --git a/settings.env b/settings.env
+++ b/settings.env
+HF_TOKEN=hf_abc
+RATE=3
"""


def test_a_diff_keeps_its_code_and_loses_its_secrets() -> None:
    assert Redactor({}).diff(DIFF) == DIFF.replace("sk-live-1", "${env:API_KEY}").replace("hf_abc", "${env:HF_TOKEN}")


def test_one_secret_never_rewrites_the_name_of_another() -> None:
    redactor = Redactor({"MY_SECRET": "SECRET", "A_TOKEN": "xx-SECRET-yy"})
    assert redactor.text("see xx-SECRET-yy and SECRET") == "see ${env:A_TOKEN} and ${env:MY_SECRET}"
    assert redactor.text("see ${env:MY_SECRET}") == "see ${env:MY_SECRET}"


@pytest.mark.parametrize(
    "value", ['quo"te\\d', "it's one", "ümläut-ß", "a+b/c d&e", "line one is long\nline two is long"]
)
def test_every_spelling_of_a_value(value: str) -> None:
    import json
    import urllib.parse

    import yaml

    redactor = Redactor({"THE_SECRET": value})
    spellings = [
        value,
        json.dumps(value),
        urllib.parse.quote(value, safe=""),
        repr(value),
        yaml.safe_dump({"x": [value]}),
    ]
    for spelling in spellings:
        assert "${env:THE_SECRET}" in redactor.text(f"before {spelling} after"), spelling


def test_a_megabyte_takes_a_moment() -> None:
    text = "".join(f"+    values[{i}] = tokens.get('key-{i}', default)\n" for i in range(20_000))
    redactor = Redactor({f"TOKEN_{i}": f"value-of-token-{i}" for i in range(20)})
    start = time.process_time()
    assert redactor.text(text, code=True) == text
    assert time.process_time() - start < 1.0
    hostile = "token" * 50_000 + ":" + "a://" * 50_000 + '"' + "\\" * 50_000
    start = time.process_time()
    redactor.text(hostile)
    assert time.process_time() - start < 5.0
