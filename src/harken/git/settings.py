"""Which settings of a repository start nothing: the only ones with which git is let run for another program.

Git starts programs for dozens of keys, and every release adds some. So they are not listed; those that start nothing
are, and what is not among them is refused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

_PLAIN: Final = """
core: abbrev attributesfile autocrlf bare bigfilethreshold checkstat commentchar commitgraph compression
core: createobject deltabasecachelimit eol excludesfile filemode filesrefLockTimeout fscache hidedotfiles ignorecase
core: ignorestat logallrefupdates longpaths loosecompression multipackindex packedgitlimit packedgitwindowsize
core: packedrefstimeout precomposeunicode preferSymlinkRefs preloadindex protecthfs protectntfs quotepath
core: repositoryformatversion safecrlf sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks
core: trustctime unsetenvvars untrackedcache usereplacerefs warnambiguousrefs whitespace worktree
user: email name signingkey useconfigonly
author: email name
committer: email name
branch: autosetupmerge autosetuprebase sort
branch.*: description gh-merge-base github-pr-owner-number merge pushremote rebase remote vscode-merge-base
remote: pushdefault
remote.*: fetch followremotehead mirror prune prunetags push skipdefaultupdate skipfetchall tagopt
submodule: active fetchjobs recurse
submodule.*: active branch fetchrecursesubmodules ignore shallow
pull: ff octopus rebase twohead
push: autosetupremote default followtags usebitmaps
fetch: fsckobjects output parallel prune prunetags recursesubmodules showforcedupdates writecommitgraph
init: defaultbranch
checkout: defaultremote guess workers
clone: defaultremotename
commit: cleanup gpgsign status template verbose
tag: forcesignannotated gpgsign sort
merge: autostash branchdesc conflictstyle directoryrenames ff log renamelimit renames stat verbosity
rebase: abbreviatecommands autosquash autostash missingcommitscheck stat updaterefs
rerere: autoupdate enabled
diff: algorithm autorefreshindex colormoved colormovedws context dirstat ignoresubmodules indentheuristic
diff: interhunkcontext mnemonicprefix noprefix relative renamelimit renames statgraphwidth submodule suppressblankempty
diff: wserrorhighlight
status: aheadbehind branch displaycommentprefix relativepaths renamelimit renames short showstash showuntrackedfiles
status: submodulesummary
log: abbrevcommit date decorate diffmerges excludedecoration follow graphcolors initialdecorationset mailmap showroot
grep: column extendedregexp fallbacktonoindex fullname linenumber patterntype threads
blame: blankboundary coloring date ignorerevsfile markignoredlines markunblamablelines showemail showroot
stash: showincludeuntracked showpatch showstat
format: pretty
color: advice branch decorate diff grep interactive push showbranch status transport ui
color.*: *
column: branch clean status tag ui
advice: *
gc: aggressivedepth aggressivewindow auto autodetach autopacklimit bigpackthreshold cruftpacks logexpiry packrefs
gc: pruneexpire reflogexpire reflogexpireunreachable rerereresolved rerereunresolved worktreepruneexpire
gc: writecommitgraph
maintenance: auto autodetach strategy
index: recordendofindexentries recordoffsettable skiphash sparse threads version
feature: experimental manyfiles
pack: compression deltacachelimit deltacachesize depth indexversion island packsizelimit readreversedindex threads
pack: usebitmaps usesparse window windowmemory writebitmaphashcache writereverseindex
repack: packkeptobjects usedeltabaseoffset usedeltaislands writebitmaps
receive: advertiseatomic autogc denycurrentbranch denydeletecurrent denydeletes denynonfastforwards fsckobjects
receive: updateserverinfo
transfer: advertisesid fsckobjects hiderefs
http: postbuffer sslverify version
http.*: extraheader postbuffer sslverify
extensions: compatobjectformat noop objectformat preciousobjects refstorage relativeworktrees worktreeconfig
lfs: repositoryformatversion
lfs.*: access locksverify
gui: encoding
i18n: commitencoding logoutputencoding
notes: displayref rewritemode rewriteref
versionsort: suffix
"""
_LFS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "clean": frozenset({"git-lfs clean -- %f"}),
        "smudge": frozenset({"git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"}),
        "process": frozenset({"git-lfs filter-process", "git-lfs filter-process --skip"}),
        "required": frozenset({"true", "false"}),
    }
)
# Beginnings of an address that name a program, such as `ext::sh -c …`, are none of these.
_ADDRESS: Final = re.compile(
    r"(?:https?|ssh|git|file|git\+ssh|ssh\+git)://[^-\s].*|[\w.@-]*[\w.]:(?!:|//|-).+|(?:\.{0,2}/|[A-Za-z]:[\\/]).*"
)
_OFF: Final = frozenset({"false", "no", "off", "0", ""})


def _read() -> frozenset[str]:
    rows = (line.partition(": ") for line in _PLAIN.strip().splitlines())
    return frozenset(f"{section}.{key}".lower() for section, _, keys in rows for key in keys.split())


_KEYS: Final = _read()
_CAREFUL: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "core.fsmonitor": lambda value: value.lower() in _OFF,
        "core.hookspath": lambda value: value == "/dev/null",
        "core.pager": lambda value: value in {"", "cat", "less", "more"},
        "remote.*.url": lambda value: _ADDRESS.fullmatch(value) is not None,
        "remote.*.pushurl": lambda value: _ADDRESS.fullmatch(value) is not None,
        "submodule.*.url": lambda value: _ADDRESS.fullmatch(value) is not None,
        "submodule.*.update": lambda value: value in {"checkout", "rebase", "merge", "none"},
        "gpg.format": lambda value: value in {"openpgp", "x509", "ssh"},
        "log.showsignature": lambda value: value.lower() in _OFF,
    }
)


def starts_nothing(name: str, value: str) -> bool:
    """Whether git starts no program because of a setting; `name` as git lists it."""
    section, _, rest = name.partition(".")
    middle, _, key = rest.rpartition(".")
    if (section.lower(), middle) == ("filter", "lfs"):
        return value in _LFS.get(key.lower(), frozenset())
    general = f"{section}.*.{key}" if middle else f"{section}.{key}"
    known = general.lower()
    if known in _CAREFUL:
        return _CAREFUL[known](value)
    return known in _KEYS or f"{known.rpartition('.')[0]}.*" in _KEYS
