# shellcheck shell=sh
# Read by the scripts that get other people's work: agents, axe, clients, clients_js, conformance, github_openapi, programs, release, setup, third_party.
# They have changed to the repository's folder before.
#
# pip tries again and again where its index cannot be reached, npm for ten minutes. So both are asked for one package
# first, once and with a few seconds' patience; only then is anything installed. Their own limits do not cover every wait,
# such as one for the answer of a proxy: `timeout` does.

say() { printf 'scripts/%s: %s\n' "${0##*/}" "$1" >&2; }
stop() { say "$1"; exit 1; }

# Two runs at once would write into the same folder; the lock is the script itself and ends with its process.
lock() { if command -v flock >/dev/null; then exec 9<"scripts/${0##*/}" && flock 9; fi; }

has_npm() { command -v npm >/dev/null || { say "npm is needed once: sudo apt install npm (or: sudo dnf install npm)"; return 1; }; }

npm_install() { # FOLDER PACKAGE…
    has_npm || return
    timeout 20 npm view "$2" version --fetch-retries=0 --fetch-timeout=8000 --loglevel=error >/dev/null ||
        { say "npm's registry cannot be reached, or has no $2 (see above)"; return 1; }
    target=$1
    shift
    timeout 400 npm install --prefix "$target" --no-audit --no-fund --no-save --loglevel=error "$@" >&2 ||
        { say "npm could not install $* (see above)"; return 1; }
}

# Prints uv, which installs in a fifth of pip's time, where it is on the PATH or beside the project.
find_uv() { command -v uv || { [ -x .venv/bin/uv ] && echo .venv/bin/uv; }; }

# Makes FOLDER a virtual environment with packages. PYTHON chooses the Python that it is made from.
pip_install() { # FOLDER PACKAGE…
    python=${PYTHON:-.venv/bin/python}
    command -v "$python" >/dev/null ||
        { say "$python is not here: run scripts/setup, or name a Python with PYTHON"; return 1; }
    quietly="-qq --disable-pip-version-check"
    # shellcheck disable=SC2086 # several words
    timeout 30 "$python" -m pip install $quietly --retries 0 --timeout 8 --dry-run --ignore-installed --no-deps "$2" >&2 ||
        { say "a package index cannot be reached, or has no $2 (see above)"; return 1; }
    target=$1
    shift
    "$python" -m venv "$target" >&2 ||
        { say "$python cannot make an environment: sudo apt install python3-venv"; return 1; }
    if uv=$(find_uv) && "$uv" pip install --quiet --python "$target/bin/python" "$@" >&2; then return; fi
    # shellcheck disable=SC2086 # several words
    "$target/bin/python" -m pip install $quietly "$@" >&2 || { say "pip could not install $* (see above)"; return 1; }
}
