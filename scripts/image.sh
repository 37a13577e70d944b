#!/bin/sh
# The steps of the container image; the Dockerfile runs them, and so does scripts/image-check.sh in a chroot.
#
#     image.sh build SOURCE TARGET    compile the gateway and lay it with what it needs into TARGET (a virtualenv)
#     image.sh runtime                make the bare system ready to run TARGET as user 10001
set -eu
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

packages() {
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends "$@" >/tmp/packages.log || { cat /tmp/packages.log; exit 1; }
    rm /tmp/packages.log
    apt-get clean
    rm -rf /var/lib/apt/lists/*
}

build() {
    source=$1 target=$2
    packages python3 python3-venv python3-dev gcc libc6-dev
    python3 -m venv /tmp/build
    /tmp/build/bin/pip install --quiet --require-hashes -r "$source/requirements-build.lock"
    mkdir -p /tmp/arbiter-source
    cp -r "$source/arbiter" "$source/setup.py" "$source/pyproject.toml" "$source/README.md" "$source/LICENSE" /tmp/arbiter-source/
    (cd /tmp/arbiter-source && /tmp/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /tmp/wheels .)

    python3 -m venv "$target"
    "$target/bin/pip" install --quiet --require-hashes --only-binary :all: -r "$source/requirements.lock"
    "$target/bin/pip" install --quiet --no-deps /tmp/wheels/*.whl
    install -m 755 "$source/scripts/health.py" "$target/bin/arbiter-health"
    sed -i "1s|.*|#!$target/bin/python|" "$target/bin/arbiter-health"

    # What only an installer, a compiler, a downloader of vocabularies or a debugger would read, and the slower of
    # zstandard's two backends.
    "$target/bin/pip" uninstall --quiet -y requests urllib3 charset-normalizer
    "$target/bin/pip" uninstall --quiet -y pip setuptools
    packed=$(echo "$target"/lib/python3*/site-packages)
    find "$packed" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
    find "$packed/zstandard" -name '*_cffi*' -delete
    rm -r "$packed/cffi" "$packed"/pycparser* # a compiler of bindings; cryptography's are compiled
    # libpq brings an OpenSSL of its own. The system's, which Python needs anyhow, does for it too, and gets Debian's fixes.
    for bundled in "$packed"/psycopg_binary.libs/libssl-*.so.3 "$packed"/psycopg_binary.libs/libcrypto-*.so.3; do
        own=$(basename "$bundled")
        ln -sf "$(ldconfig -p | sed -n "s|.*=> \(.*/${own%%-*}\.so\.3\)$|\1|p" | head -n 1)" "$bundled"
    done
    rm -r "$packed/pydantic/v1" # for those who still write models of its first version; nobody here does
    find "$packed" -name '*.so' -exec strip --strip-unneeded {} +
    find "$packed" \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.pyi' \) -delete
    find "$target" -name __pycache__ -prune -exec rm -rf {} +
    "$target/bin/python" -m compileall -q -j 0 "$packed/arbiter"
    # Whose sources nobody reads here (prices are 1.5 MB of constants): other people's modules are there as bytecode.
    "$target/bin/python" -m compileall -q -j 0 -b -x '/arbiter/' "$packed"
    find "$packed" -path "$packed/arbiter" -prune -o -name '*.py' -print | while read -r source; do
        [ ! -e "${source}c" ] || rm "$source"
    done
    rm -rf /tmp/build /tmp/arbiter-source /tmp/wheels
}

runtime() {
    packages python3 ca-certificates
    # Of the standard library what serves developers only, and what packages ask while they are installed; also the
    # encodings of other decades: JSON is UTF-8, and the names in a zip file are in cp437.
    (
        cd /usr/lib/python3.*
        rm -rf idlelib pydoc_data test tkinter turtledemo unittest
        rm -f turtle.py doctest.py pdb.py pydoc.py _pydecimal.py
        rm -f lib-dynload/_test*.so lib-dynload/_ctypes_test*.so lib-dynload/_xxtest*.so lib-dynload/_codecs_*.so
        find encodings -name '*.py' | grep -E '/(cp[0-9]+|iso[0-9]|mac_|koi8|kz|hp_|big5|euc_|gb|hz|johab|shift_jis|ptcp|tis|palmos)' |
            grep -vE '/cp(437|1252)\.py$' | xargs rm
        # The caches of what is no more.
        find . -name '*.cpython-*.pyc' | while read -r cached; do
            source=${cached%/__pycache__/*}/${cached##*/}
            [ -e "${source%.cpython-*.pyc}.py" ] || rm "$cached"
        done
    )
    # ... and time zones as clocks that count leap seconds have them.
    rm -rf /var/cache/debconf/* /var/log/* /usr/share/zoneinfo/right
    # A fixed number, so that volumes and security policies can name it.
    echo 'arbiter:x:10001:10001:Arbiter:/data:/usr/sbin/nologin' >>/etc/passwd
    echo 'arbiter:x:10001:' >>/etc/group
    mkdir -p /config /data
    chown 10001:10001 /config /data
}

verb=$1
shift
"$verb" "$@"
