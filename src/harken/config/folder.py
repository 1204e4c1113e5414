"""Which folder Harken lives in, as a text, and the files in it that commands look at themselves.

Every command asks this first, so it imports nothing. `Home` in `home.py` names everything else in the folder.
"""

from __future__ import annotations

import os

from harken.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_HOME = "~/.harken"
CONFIG_FILE = "config.toml"
ADDRESS_FILE = "run/address"
DAEMON_LOG = "logs/daemon.log"


def find_folder(flag: str | None, environ: Mapping[str, str]) -> str:
    """Return the home that the flag, else HARKEN_HOME, else the default names; nothing is created."""
    if flag is not None and not flag:
        raise UserError("The home folder given by --home is empty.", "Name a folder, or leave --home out.")
    text = flag or environ.get("HARKEN_HOME") or DEFAULT_HOME
    if not text.isprintable():
        raise UserError(
            "The name of the home folder contains characters that cannot be shown.",
            "Choose a folder with a plain name.",
        )
    # Not `realpath`: a link that the user chose to go through stays in what is shown.
    return os.path.normpath(os.path.join(os.getcwd(), expand_folder(text, environ)))


def expand_folder(text: str, environ: Mapping[str, str]) -> str:
    """Return the path with a leading `~` replaced by the user's own folder."""
    own = environ.get("HOME", "")
    if own and (text == "~" or text.startswith("~/")):
        return own + text[1:]
    found = os.path.expanduser(text)
    if found.startswith("~"):
        raise UserError(f"The folder {text} cannot be found: there is no such user.", "Write the path in full.")
    return found
