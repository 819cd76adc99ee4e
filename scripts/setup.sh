# Sourced by scripts/demo and scripts/test: a virtual environment in .venv that holds what `extras` asks for.
# A stamp of pyproject.toml and the extras tells whether there is anything to install.

install() {
    local extras=$1 python=${PYTHON:-python3} root stamp
    root=$(pwd)
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "$python is not Python 3.11 or newer. Set PYTHON to one: PYTHON=python3.12 $0" >&2
        exit 2
    fi
    if ! .venv/bin/python -m pip --version > /dev/null 2>&1; then  # none, or one whose making was cut short
        rm -rf .venv
        "$python" -m venv .venv || { rm -rf .venv; exit 2; }
    fi
    stamp=.venv/.installed-${extras:-base}
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$root $(cksum < pyproject.toml)" ]; then
        return
    fi
    echo "Installing into .venv (once; a few minutes) ..." >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".${extras:+[$extras]}" >&2
    # What has the extras has the base too, not the other way round.
    echo "$root $(cksum < pyproject.toml)" > .venv/.installed-base
    [ "$stamp" = .venv/.installed-base ] || cp .venv/.installed-base "$stamp"
}
