#!/bin/bash
# The board's page in Debian's Chromium; `make browser` installs what it needs. The pictures
# that it takes are kept in build/browser.
set -euo pipefail
cd "$(dirname "$0")"

build=$PWD/../../build
export PYTHONPYCACHEPREFIX=$build/browser/pycache # nothing is left beside the sources
if "$build/python-browser/bin/python" check_board.py "$build/trefoil" "$build/browser"; then
    echo "browser: ok; pictures of the page are in build/browser"
else
    echo "browser: FAILED"
    exit 1
fi
