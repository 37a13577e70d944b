#!/bin/bash
# Install the peers that `python -m bench.compare` measures, into .cache/peers: bash bench/compare/peers.sh [NAME...]
# Each comes from its own registry by that registry's own client, at the version written here, into a folder of its own.
# One that cannot be had is said at the end; the others are there all the same. nginx and HAProxy are Debian's.
set -uo pipefail
cd "$(dirname "$0")/../.."
home=$(realpath -m "${ARBITER_PEERS:-.cache/peers}")
export PIP_DISABLE_PIP_VERSION_CHECK=1
lacking=()

python_peer() { # FOLDER REQUIREMENT...
    local folder=$home/$1
    shift
    [ -x "$folder/bin/pip" ] || "${PYTHON:-python3}" -m venv "$folder" && "$folder/bin/pip" install --quiet "$@"
}

haproxy() { # its service is not to start by itself
    command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] ||
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends haproxy
}
aiohttp_proxy() { python_peer aiohttp_proxy aiohttp==3.14.5 uvloop==0.23.0; }
vllm_router() { python_peer vllm_router vllm-router==0.1.17; }
smg() { python_peer smg smg==1.13.0; }
rolter() { python_peer rolter rolter==0.1.0; }
ferrogw() { python_peer ferrogw ferrogw==1.5.10; }
tensorzero() { python_peer tensorzero tensorzero==2026.6.0; }
litellm() { python_peer litellm 'litellm[proxy]==1.106.12'; }

portkey() { # it changes headers that newer releases of @hono/node-server leave immutable: every stream would be a 500
    mkdir -p "$home/portkey" && cat >"$home/portkey/package.json" <<'JSON' &&
{"private": true, "dependencies": {"@portkey-ai/gateway": "1.15.2"}, "overrides": {"@hono/node-server": "1.13.8"}}
JSON
        rm -f "$home/portkey/package-lock.json" && npm install --silent --no-fund --no-audit --prefix "$home/portkey"
}

all=(haproxy aiohttp_proxy vllm_router smg rolter ferrogw tensorzero portkey litellm)
for name in "${@:-${all[@]}}"; do
    case " ${all[*]} " in *" $name "*) ;; *)
        echo "no peer $name; there are: ${all[*]}" >&2
        exit 2
        ;;
    esac
    echo "installing $name"
    "$name" || lacking+=("$name")
done
if [ ${#lacking[@]} -gt 0 ]; then
    echo "could not be installed: ${lacking[*]}" >&2
    exit 1
fi
