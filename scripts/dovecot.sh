#!/bin/sh
# Makes sure that there is a mail server for the tests of mail: Dovecot, from the system's packages. Nothing of it is
# started here. Without one, and without the right to install it, those tests are skipped and say why; this never fails.

PATH=$PATH:/usr/sbin:/usr/local/sbin
command -v dovecot >/dev/null 2>&1 && exit 0
note() { printf 'No mail server for the tests of mail: %s. They will be skipped.\n' "$1" >&2; exit 0; }
command -v apt-get >/dev/null 2>&1 || note 'install Dovecot'
[ "$(id -u)" = 0 ] || note 'as root, run apt-get install dovecot-imapd'
printf 'Installing Dovecot for the tests of mail ...\n' >&2
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
if apt-get -qq update >"$log" 2>&1 && apt-get -qq -y install --no-install-recommends dovecot-imapd >>"$log" 2>&1; then
    rm -f "$log"
else
    note "apt-get failed, see $log"
fi
