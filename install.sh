#!/bin/sh
# Installs the command rkllm-mcp for this user, in an environment of its own: with uv or pipx, whichever is here; where neither
# is, uv is installed first, from the package index and without root. Nothing else is changed; 'rkllm-mcp setup' does the rest.
#   sh install.sh            this checkout, or the released package where the script stands alone
#   sh install.sh PACKAGE    another one: a wheel, a folder, rkllm-mcp==0.1.0
set -eu

stop() { printf 'install.sh: %s\n' "$1" >&2; exit 1; }

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
package=${1:-}
if [ -z "$package" ]; then
    package=rkllm-mcp
    # Another user may lay a project next to the script, as in /tmp, or into the folder where it is read from a pipe.
    owners=$(stat -c %u "$0" "$here/pyproject.toml" 2>/dev/null | sort -u | wc -l)
    case $(stat -c %A "$here") in ????????w?) owners=0 ;; esac
    if [ -f "$0" ] && [ "$owners" -eq 1 ] && grep -q '^name = "rkllm-mcp"' "$here/pyproject.toml" 2>/dev/null; then
        package=$here
    fi
fi
[ -n "${HOME:-}" ] || stop "HOME is not set; set it to your home folder"

runs() { "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }
PATH=$PATH:$HOME/.local/bin

if ! command -v uv >/dev/null && ! command -v pipx >/dev/null; then
    runs python3 || stop "neither uv nor pipx is here, and no Python 3.10 or newer to get one: sudo apt install pipx"
    place=${XDG_DATA_HOME:-$HOME/.local/share}/rkllm-mcp/uv
    echo "Getting uv into $place …" >&2
    # Debian and Ubuntu ship Python without the part that makes environments.
    # -I: no module is imported from the current folder, which others may write.
    python3 -I -m venv "$place" 2>/dev/null || { rm -rf "$place"; stop "python3 cannot make an environment: sudo apt install pipx"; }
    "$place/bin/python" -I -m pip install --disable-pip-version-check --no-cache-dir uv ||
        { rm -rf "$place"; stop "uv could not be installed (see above); is a package index reachable?"; }
    mkdir -p "$HOME/.local/bin"
    ln -sf "$place/bin/uv" "$place/bin/uvx" "$HOME/.local/bin/"
fi

# What was added with 'rkllm-mcp install' is added again.
optional=$(rkllm-mcp install --names 2>/dev/null) || optional=
echo "Installing $package …" >&2
if command -v uv >/dev/null; then
    # Compiled by this user: what a later sudo compiles, this user could not update.
    # Without a cache: nothing else here is made of these packages.
    uv tool install --no-cache --compile-bytecode --reinstall-package rkllm-mcp "$package" || stop "uv could not install $package (see above)"
    program=$(uv tool dir --bin)/rkllm-mcp
else
    pipx install --force "$package" || stop "pipx could not install $package (see above)"
    program=$(pipx environment --value PIPX_BIN_DIR 2>/dev/null || echo "$HOME/.local/bin")/rkllm-mcp
fi
"$program" --version
# shellcheck disable=SC2086 # several words
[ -z "$optional" ] || "$program" install $optional || echo "Not installed again: $optional" >&2
command -v bwrap >/dev/null || echo "For the sandbox of MCP servers: sudo apt install bubblewrap" >&2
command -v uvx >/dev/null || echo "For MCP servers in Python: $program install uvx" >&2
command -v npx >/dev/null || echo "For MCP servers in JavaScript: sudo apt install npm" >&2
case ":${PATH%":$HOME/.local/bin"}:" in
    *":$(dirname "$program"):"*) echo "Next: rkllm-mcp setup" ;;
    *) echo "Next: $program setup     (or log in again, which puts $(dirname "$program") into PATH)" ;;
esac
