"""Makes the part of the package's metadata that depends on where the project lives; hatchling runs it in every build.

Links of the README are relative, so that they work in every clone and fork. An index shows the README on a page of its
own, where a relative link leads nowhere: with `HARKEN_REPOSITORY=https://HOST/OWNER/NAME`, which the release workflow
sets, each link becomes absolute and names the tag of this version, and the package has the addresses of the project. A
build without the variable knows no address, and gives none. `scripts/release.py` refuses to release such a build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY: Final = "HARKEN_REPOSITORY"
PICTURES: Final = (".svg", ".png", ".webm")

_LINK: Final = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")(?![a-z]+:|#)([^)\"\s]+)")


class AddressHook(MetadataHookInterface):
    """Gives the package its README and its addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`, and `urls` where the repository is known."""
        repository = os.environ.get(REPOSITORY, "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:
            text = absolute_links(text, repository, tag=f"v{metadata['version']}")
            metadata["urls"] = addresses(repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute_links(text: str, repository: str, *, tag: str) -> str:
    """Return a page in which each relative link names its file at a tag of the repository."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[2].endswith(PICTURES) else "blob"
        return f"{found[1]}{repository}/{kind}/{tag}/{found[2]}"

    return _LINK.sub(absolute, text)


def relative_links(text: str) -> list[str]:
    """Return the links of a page that lead nowhere outside the checkout."""
    return [found[2] for found in _LINK.finditer(text)]


def addresses(repository: str) -> dict[str, str]:
    """Return the addresses that an index shows beside the package."""
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
        "Security": f"{repository}/security/policy",
    }
