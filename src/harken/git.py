"""Calls git, and finds what a repository's settings could make it start. It knows no host and no task.

git is asked in the person's own environment and within a time. Variables that point at another repository are left out:
a command in a git hook has them, and means its own folder. Hooks and monitors of the repository are not started: it may
belong to others.

A clone brings no settings along, an unpacked archive or a shared folder does, and hosts run git by themselves when they
start. So git finds no repository in a run that may not run it; where it may, the settings of the repository and of its
submodules must be such that nothing is started, and what else could start something is overruled by variables. Above
are the sandboxes.

Git starts programs for dozens of keys, and every release adds some. So they are not listed; those that start nothing
are, and what is not among them is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import HarkenError, Unavailable, UserError

ASK_SECONDS: Final = 30.0
WORK_SECONDS: Final = 600.0  # a checkout of something large
SAID_CHARS: Final = 2000
_OTHER_REPOSITORY: Final = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
_OVERRULED: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("protocol.ext.allow", "never"),
)
# Else a subfolder that looks like a repository is one, settings and all.
_NOT_BARE: Final = ("safe.bareRepository", "explicit")
# What git starts when it checks out, compares and removes files; the rest it does not look at then.
_AT_CHECKOUT: Final = re.compile(
    r"filter\..*|include(?:if\..*)?\..*|extensions\.partialclone|remote\..*\.(?:promisor|partialclonefilter|uploadpack)"
    r"|core\.(?:sshcommand|gitproxy|askpass|alternaterefscommand)|credential\..*|.* .*",
    re.IGNORECASE,
)
_GIT: Final = "git"
_FOLDER: Final = ".git"
_ELSEWHERE: Final = re.compile(r"gitdir:[ ]*(.+)")
_SUBMODULE: Final = re.compile(rb"160000 [0-9a-f]+ \d\t(.+)", re.DOTALL)
_SECONDS: Final = 30.0
MAX_SUBMODULES: Final = 1_000
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


def _variables(*settings: tuple[str, str]) -> Mapping[str, str]:
    """Return an environment in which git has these settings, before those of a repository."""
    return MappingProxyType(
        {
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_PAGER": "cat",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(settings)},
        }
    )


HARKENS_OWN: Final = _variables(*_OVERRULED)
"""For what Harken itself asks git, in repositories of any kind."""


VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {**_variables(*_OVERRULED, _NOT_BARE), "GIT_OPTIONAL_LOCKS": "0"}
)
"""For a run that may run git."""


NOWHERE: Final[Mapping[str, str]] = MappingProxyType({**VARIABLES, "GIT_DIR": os.devnull})
"""With these git finds no repository, whatever the folder."""


def run_git(
    program: str, words: Sequence[str], environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run git in the root folder, without input; raises `OSError` and `subprocess.TimeoutExpired`."""
    return subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd="/",
        env=environ,
        timeout=seconds,
        check=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAnswer:
    """How git ended, and what it said. Names of files are any bytes."""

    code: int
    out: str
    error: str


def git(folder: Path, *words: str, seconds: float = ASK_SECONDS, sets: Mapping[str, str] | None = None) -> GitAnswer:
    """Run git in a folder; raises `UserError` without git, and `Unavailable` when it takes too long."""
    program = shutil.which("git")
    if program is None:
        raise UserError("git is not installed.", "Install it, or use a folder as it is: --here")
    kept = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    try:
        done = run_git(program, ("-C", str(folder), *words), {**kept, **HARKENS_OWN, **(sets or {})}, seconds)
    except OSError as exc:
        raise UserError(f"git cannot be run: {exc.strerror}.", "Check that it can be started here.") from exc
    except subprocess.TimeoutExpired as exc:
        raise Unavailable(f"git did not end within {seconds:.0f} seconds.", "Look at the repository by hand.") from exc
    return GitAnswer(
        code=done.returncode,
        out=os.fsdecode(done.stdout),
        error=done.stderr.decode("utf-8", "replace").strip()[-SAID_CHARS:],
    )


def trouble(message: str, said: GitAnswer) -> HarkenError:
    """Return the error for what git refused, with its own words."""
    return UserError(message, said.error or f"git ended with code {said.code}.")


def starts_at_checkout(folder: Path) -> str:
    """Return a setting by which git could start a program when files of a folder are checked out; empty: none."""
    found = ((file, name) for file, name in risky_settings(folder) if _AT_CHECKOUT.fullmatch(name))
    return next((f"{name} in {file}" for file, name in found), "")


def file_starts_nothing(file: Path) -> bool:
    """Whether no setting in a file of git's could make git start a program."""
    program = shutil.which(_GIT)
    return program is not None and not any(_unknown(program, file))


def risky_settings(workdir: Path) -> Iterator[tuple[Path, str]]:
    """Yield the settings of a folder's repository, and of its submodules, that could make git start a program.

    Each is the file and the name of the setting. Of a file that cannot be read, the name says so.
    """
    program = shutil.which(_GIT)
    top = next((folder for folder in (workdir, *workdir.parents) if _is_there(folder / _FOLDER)), None)
    if program is None or top is None:
        return
    waiting, seen = [top], set[Path]()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        if len(seen) > MAX_SUBMODULES:
            yield folder, "more submodules than can be looked at"
            return
        found = [(file, name) for file in _settings(folder / _FOLDER) for name in _unknown(program, file)]
        yield from found
        if not found:
            waiting += _submodules(program, folder)


def _settings(own: Path) -> Iterator[Path]:
    for place in dict.fromkeys(_places(own)):
        yield from (place / "config", place / "config.worktree")


def _places(own: Path) -> Iterator[Path]:
    """Yield where a repository keeps its settings, also when another folder keeps them for it."""
    yield own
    if own.is_file():
        found = _ELSEWHERE.match(own.read_text(encoding="utf-8", errors="replace"))
        there = own.parent / (found[1].strip() if found else "")
        yield there
        shared = there / "commondir"
        if shared.is_file():
            yield _plain(there / shared.read_text(encoding="utf-8", errors="replace").strip())


def _plain(path: Path) -> Path:
    """Return a path as people write it, if it is there: without `..` in it."""
    return path.resolve() if path.exists() else path


def _unknown(program: str, file: Path) -> Iterator[str]:
    """Yield the names of settings in a file that are not known to start nothing. Git itself reads it, and only it."""
    if not _is_there(file):
        return
    said = _ask(program, "config", "--file", str(file), "--no-includes", "--null", "--list")
    if said is None:
        yield "a setting that cannot be read"
        return
    for entry in said.split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("\n")
        if name and not starts_nothing(name, value):
            yield name


def _submodules(program: str, folder: Path) -> Iterator[Path]:
    """Yield the folders of a repository's submodules; its own settings are known to start nothing."""
    said = _ask(program, "-C", str(folder), "ls-files", "--stage", "-z", is_there=True) or b""
    for entry in said.split(b"\0"):
        if (found := _SUBMODULE.fullmatch(entry)) and _is_there((inner := folder / os.fsdecode(found[1])) / _FOLDER):
            yield inner


def _ask(program: str, *words: str, is_there: bool = False) -> bytes | None:
    """Return what git says of files, with no settings but those that are asked for; None when it fails."""
    alone = {"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/"}
    try:
        done = run_git(program, words, {**alone, **(VARIABLES if is_there else NOWHERE)}, _SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _is_there(path: Path) -> bool:
    """Whether something is there, or may be: what cannot be looked at here may be looked at there."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read() -> frozenset[str]:
    rows = (line.partition(": ") for line in _PLAIN.strip().splitlines())
    return frozenset(f"{section}.{key}".lower() for section, _, keys in rows for key in keys.split())


_KEYS: Final = _read()


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
