#!/bin/bash
# Run the image's build steps in chroots, start the result as its user on a read-only root, and ask it a few things.
# Stands in for `docker build` where there is no engine; needs root and mmdebstrap (Debian: apt-get install mmdebstrap).
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "image-check needs root (it makes chroots)" >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "image-check needs mmdebstrap (Debian: apt-get install mmdebstrap)" >&2; exit 1; }

limit_mb=200
place=$(mktemp -d /var/tmp/image-check.XXXXXX)
gateway=
finish() {
    [ -z "$gateway" ] || { kill -KILL "$gateway" 2>/dev/null && wait "$gateway" 2>/dev/null; } || true
    for mounted in $(awk -v at="$place" 'index($2, at) == 1 {print $2}' /proc/self/mounts | sort -r); do umount -l "$mounted"; done
    rm -rf --one-file-system "$place"
}
trap finish EXIT

say() { printf 'image-check: %s\n' "$*"; }

# As the slim base image: the smallest Debian with apt, without documentation and translations, /usr merged at birth
# (the package that would merge it later brings all of Perl).
base() {
    mmdebstrap --quiet --variant=minbase --mode=root \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        trixie "$1" >"$place/log" 2>&1 || { cat "$place/log"; return 1; }
}

# Networks differ in how they are reached: the steps see this machine's resolver, proxies, pip settings and trust store.
inside() { # ROOT COMMAND...
    local root=$1 settings=()
    shift
    while IFS= read -r line; do settings+=("$line"); done < <(env | grep -Ei '^(https?_proxy|no_proxy|pip_index_url|pip_default_timeout)=' || true)
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "${settings[@]}" PIP_CERT=/tmp/trust.pem chroot "$root" "$@"
}

lend() { # ROOT: what the steps may use and the image does not keep
    mount -t proc proc "$1/proc"
    cp -L /etc/resolv.conf "$1/etc/resolv.conf"
    [ ! -f /etc/pip.conf ] || cp -L /etc/pip.conf "$1/etc/pip.conf"
    cp -L "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$1/tmp/trust.pem"
}

take_back() {
    rm -f "$1/etc/resolv.conf" "$1/etc/pip.conf" "$1/tmp/trust.pem"
    umount "$1/proc"
}

say "making the base"
base "$place/base"
cp -a "$place/base" "$place/build"
mv "$place/base" "$place/image"

say "image.sh build"
lend "$place/build"
mkdir "$place/build/src"
git ls-files -z | tar --null --files-from=- --create --file=- | tar -x -C "$place/build/src"
inside "$place/build" /src/scripts/image.sh build /src /opt/arbiter

say "image.sh runtime"
lend "$place/image"
cp scripts/image.sh "$place/image/tmp/image.sh"
inside "$place/image" /tmp/image.sh runtime
rm "$place/image/tmp/image.sh"
take_back "$place/image"
cp -a "$place/build/opt/arbiter" "$place/image/opt/"

size=$(du -sm --one-file-system "$place/image" | cut -f1)
say "size on disk: $size MB ($(du -sm "$place/image/opt/arbiter" | cut -f1) MB of it Arbiter and its libraries)"
[ "$size" -lt "$limit_mb" ] || { say "FAILED: not under $limit_mb MB"; exit 1; }

# ------------------------------------------------------------------------------- as a container would run it
mount --bind "$place/image" "$place/image"
mount -o remount,bind,ro "$place/image"
mount -t tmpfs -o size=64m tmpfs "$place/image/tmp"
mount -t tmpfs -o size=256m,uid=10001,gid=10001,mode=0750 tmpfs "$place/image/data"
mount -t proc proc "$place/image/proc"
mount --rbind /dev "$place/image/dev" && mount --make-rslave "$place/image/dev"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as_user=(env -i PATH=/opt/arbiter/bin:/usr/sbin:/usr/bin:/bin HOST=127.0.0.1 PORT="$port" ARBITER_CONFIG=/config/arbiter.yaml
    ARBITER_DATA_DIR=/data PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 chroot --userspec=10001:10001 "$place/image")
if "${as_user[@]}" /usr/bin/touch /opt/arbiter/mine 2>/dev/null; then say "FAILED: the root can be written"; exit 1; fi
say "version: $("${as_user[@]}" arbiter --version)"
"${as_user[@]}" python -c 'import psycopg; assert psycopg.pq.__impl__ == "binary"' || { say "FAILED: no PostgreSQL"; exit 1; }
"${as_user[@]}" python -c 'import cryptography.hazmat.primitives.ciphers.aead' || { say "FAILED: no AES"; exit 1; }
every='import importlib, pkgutil, arbiter
for one in pkgutil.walk_packages(arbiter.__path__, "arbiter."):
    one.name.endswith("__main__") or importlib.import_module(one.name)'
"${as_user[@]}" python -c "$every" || { say "FAILED: something that a module needs is missing"; exit 1; }
"${as_user[@]}" arbiter demo >"$place/log" 2>&1 &
gateway=$!
for _ in $(seq 150); do
    "${as_user[@]}" arbiter-health 2>/dev/null && break
    kill -0 "$gateway" 2>/dev/null || break
    sleep 0.2
done
"${as_user[@]}" arbiter-health || { cat "$place/log"; say "FAILED: it does not answer"; exit 1; }
say "answers GET /health as user 10001 on a read-only root"

kill -TERM "$gateway"
wait "$gateway" && code=0 || code=$?
gateway=
[ "$code" = 0 ] || { cat "$place/log"; say "FAILED: exit $code after SIGTERM"; exit 1; }
say "ends with 0 after SIGTERM"
say "ok (the steps of the image; the image itself is built where there is a Docker engine)"
