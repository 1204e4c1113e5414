"""Every host of the registry keeps the contract: ours, and those of other packages where some are installed."""

from __future__ import annotations

import pytest

from harken.hosts.host import Host
from harken.hosts.registry import host_named, host_names
from tests.contracts.host import HostSuite


class TestHosts(HostSuite):
    """The suite over the registry."""

    @pytest.fixture(params=host_names())
    def host(self, request: pytest.FixtureRequest) -> Host:
        """Each host."""
        return host_named(request.param)
