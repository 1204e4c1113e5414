#!/bin/sh
# Makes sure that there is a browser for the tests of the page: Chromium, from the system's packages.
# Without one, and without the right to install it, those tests are skipped and say why; this never fails.

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
note() { printf 'No browser for the tests of the page: %s. They will be skipped.\n' "$1" >&2; exit 0; }
command -v apt-get >/dev/null 2>&1 || note 'install Chromium and put it on PATH'
[ "$(id -u)" = 0 ] || note 'as root, run apt-get install chromium'
printf 'Installing Chromium for the tests of the page ...\n' >&2
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if apt-get -qq update >"$log" 2>&1 && apt-get -qq -y install chromium fonts-noto-core >>"$log" 2>&1; then
    rm -f "$log"
else
    note "apt-get failed, see $log"
fi
