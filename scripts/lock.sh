#!/bin/sh
# Write requirements*.lock anew from pyproject.toml: exact pins with hashes, for every Python from 3.11 on Linux.
# `make lock` keeps the pins that still fit; `make lock UPGRADE=1` looks for newer ones.
set -eu
cd "$(dirname "$0")/.."

tool=.cache/lock
[ -x "$tool/bin/uv" ] || { "${PYTHON:-python3}" -m venv "$tool" && "$tool/bin/pip" install --quiet uv; }

compile() {
    "$tool/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-header --quiet \
        ${UPGRADE:+--upgrade} "$@"
}

compile pyproject.toml -o requirements.lock
compile --group build -o requirements-build.lock
compile pyproject.toml --group build --group dev -c requirements.lock -c requirements-build.lock -o requirements-dev.lock
