#!/usr/bin/env bash
# Install the package with its pinned dependencies into a virtual environment: tools/install.sh PYTHON VENV [EXTRAS]
# Called by make. Without EXTRAS it installs the core, with them it adds to what is there. Safe to repeat: a finished
# environment is brought up to date, one that was interrupted or moved is made anew.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1 venv=$2 extras=${3:-}
unfinished="$venv/.unfinished"

if ! version=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null); then
    echo "make: there is no '$python' here; install Python 3.11 or newer, or name yours: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "make: rl_training needs Python 3.11 or newer, and '$python' is $version; name another: make PYTHON=python3.12" >&2
    exit 1
fi

# The scripts of an environment hold its absolute path, so one that was copied or moved reports another place, or does not run.
if [ -e "$unfinished" ] || ! "$venv/bin/pip" --version 2>/dev/null | grep -qF "from $PWD/$venv/"; then
    echo "make: creating $venv with Python $version"
    if ! "$python" -m venv --clear "$venv"; then
        echo "make: '$python -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2
        exit 1
    fi
fi

# Extras are added to the package that is there; installing it again would build it again.
if [ -z "$extras" ] || ! "$venv/bin/python" -m pip show --quiet rl-training 2>/dev/null; then
    set -- -e ".${extras:+[$extras]}"
else
    set -- "rl-training[$extras]"
fi
echo "make: installing ${extras:+the extras $extras of }rl_training; the first time takes a few minutes"
touch "$unfinished"
# Once as an option and twice as variables: pip hands only the variables on to the environment that builds the package.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$venv/bin/python" -m pip install --quiet -c constraints.txt "$@"
# MuJoCo draws with these where there is no screen; without them everything but its images and videos works.
opengl="libegl1 libopengl0 libgl1-mesa-dri"
if [[ ",$extras," == *,dev,* ]] && command -v dpkg >/dev/null && ! dpkg -s $opengl >/dev/null 2>&1; then
    install="apt-get install -y --no-install-recommends $opengl"
    if [ "$(id -u)" != 0 ] || ! { apt-get update -qq && $install -qq; } >/dev/null 2>&1; then
        echo "make: to draw MuJoCo scenes without a screen: $install" >&2
    fi
fi
# The tests of the dashboard drive it; Playwright itself downloads no browser.
if [[ ",$extras," == *,dev,* ]] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null \
    && ! command -v google-chrome >/dev/null; then
    install="apt-get install -y --no-install-recommends chromium"
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || ! { apt-get update -qq && $install -qq; } >/dev/null 2>&1; then
        echo "make: the tests of the dashboard need Chromium: $install (on other systems: your package manager)" >&2
    fi
fi
# As pip does for every other package: a tenth of a second less for each start where Python may not write beside its sources.
"$venv/bin/python" -m compileall -q src
rm "$unfinished"
