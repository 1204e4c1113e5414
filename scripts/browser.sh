#!/bin/sh
# Makes sure that there is a browser for the tests of the page: Chromium, from the system's packages.
# Without one, and without the right to install it, those tests are skipped and say why; this never fails.

# The shell without a window needs a third less CPU than the whole browser; it is not packaged everywhere.
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
note() { printf 'No browser for the tests of the page: %s. They will be skipped.\n' "$1" >&2; exit 0; }
command -v apt-get >/dev/null 2>&1 || note 'install Chromium and put it on PATH'
[ "$(id -u)" = 0 ] || note 'as root, run apt-get install chromium'
printf 'Installing Chromium for the tests of the page ...\n' >&2
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
install() { apt-get -qq -y install "$1" fonts-noto-core >>"$log" 2>&1; }
if apt-get -qq update >"$log" 2>&1 && { install chromium-headless-shell || install chromium; }; then
    rm -f "$log"
else
    note "apt-get failed, see $log"
fi
