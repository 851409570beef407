"""The key, seals and remembered consents, without any run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from rl_training.trust import seals
from rl_training.trust.seals import Identity

ONE = Identity("run", "a", "0" * 64)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "rl_training"


def test_a_seal_fits_only_what_it_was_made_for(home: Path) -> None:
    mark = seals.seal(ONE)
    assert mark is not None
    assert seals.is_sealed(ONE, mark)
    for other in (ONE._replace(kind="group"), ONE._replace(id="b"), ONE._replace(digest="1" * 64)):
        assert not seals.is_sealed(other, mark)
    for wrong in (None, "", "0" * 64, mark[:-1], mark.upper() + "x", 5, ["x"], "\u00e9" * 64):
        assert not seals.is_sealed(ONE, wrong)
    assert Identity("run", "a/b", "c") != Identity("run/a", "b", "c")
    assert Identity("run", "a/b", "c").text() != Identity("run/a", "b", "c").text()


def test_the_key_is_made_once_and_readable_by_its_owner_alone(home: Path) -> None:
    assert not seals.is_sealed(ONE, "0" * 64)
    assert not home.exists()  # checking creates no key
    first = seals.seal(ONE)
    file = home / "trust.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert len(bytes.fromhex(file.read_text())) == 32
    assert seals.seal(ONE) == first
    assert os.listdir(home) == ["trust.key"]


def test_processes_that_make_the_key_at_once_agree_on_one(home: Path) -> None:
    marks: list[str | None] = []
    threads = [threading.Thread(target=lambda: marks.append(seals.seal(ONE))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(marks)) == 1
    assert os.listdir(home) == ["trust.key"]


def test_a_key_in_the_environment_is_shared_and_the_own_key_still_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = seals.seal(ONE)
    monkeypatch.setenv("RL_TRAINING_TRUST_KEY", "ours")
    shared = seals.seal(ONE)
    assert shared != before
    assert seals.is_sealed(ONE, before)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another machine"))
    assert seals.is_sealed(ONE, shared)
    assert not seals.is_sealed(ONE, before)
    assert seals.seal(ONE) == shared
    assert not (tmp_path / "another machine").exists()  # no key is made where there is one


def test_without_a_place_to_write_there_is_no_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert seals.seal(ONE) is None
    assert seals.remembered() == []
    with pytest.warns(UserWarning, match="holds for this command only"):
        seals.remember(ONE, ["x"])


def test_a_key_that_others_can_read_is_not_used(home: Path) -> None:
    mark = seals.seal(ONE)
    (home / "trust.key").chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        assert not seals.is_sealed(ONE, mark)


def test_a_relative_config_home_is_no_place_for_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG says to ignore a relative path; otherwise the key could end up in any working directory, even in a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert seals.config_folder() == tmp_path / "home" / ".config" / "rl_training"


def test_consents_are_remembered_listed_and_forgotten(home: Path) -> None:
    other = ONE._replace(id="b")
    seals.remember(ONE, ["plugins x"])
    seals.remember(other, [])
    assert seals.is_remembered(ONE)
    assert not seals.is_remembered(ONE._replace(digest="1" * 64))
    assert [(entry.id, entry.code) for entry in seals.remembered()] == [("a", ("plugins x",)), ("b", ())]
    assert (home / "consents.json").stat().st_mode & 0o777 == 0o600
    assert [entry.id for entry in seals.forget(["a", "unknown"])] == ["a"]
    assert not seals.is_remembered(ONE)
    assert seals.is_remembered(other)


def test_a_file_of_consents_that_is_damaged_or_open_to_others_says_nothing(home: Path) -> None:
    seals.remember(ONE, [])
    file = home / "consents.json"
    good = file.read_text()
    for damaged in ("", "[]", "{", '{"consents": 5}', good[:-20], "[" * 100_000):
        file.write_text(damaged)
        assert not seals.is_remembered(ONE)
    file.write_text(good)
    assert seals.is_remembered(ONE)
    file.chmod(0o666)
    assert not seals.is_remembered(ONE)


def test_no_key_is_in_what_is_stored(home: Path) -> None:
    seals.remember(ONE, ["x"])
    mark = seals.seal(ONE)
    key = (home / "trust.key").read_text().strip()
    assert key not in (home / "consents.json").read_text() + json.dumps(mark)
