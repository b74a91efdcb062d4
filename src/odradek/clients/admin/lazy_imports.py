"""Import the modules of admin calls on first use.

Out: `topics`, `configs` …, proxies of the modules of these names. Each module imports up to ten
modules of messages, and most programs use one or two. Must not: import one by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.common.errors import first_use


class Family:
    """Stand-in for a module, which imports it on first use."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        with first_use():
            return getattr(import_module(self._module), name)


if TYPE_CHECKING:
    from odradek.clients.admin import acls as acls
    from odradek.clients.admin import api_versions as api_versions
    from odradek.clients.admin import cluster as cluster
    from odradek.clients.admin import configs as configs
    from odradek.clients.admin import examination as examination
    from odradek.clients.admin import group_offsets as group_offsets
    from odradek.clients.admin import groups as groups
    from odradek.clients.admin import log_dirs as log_dirs
    from odradek.clients.admin import offsets as offsets
    from odradek.clients.admin import reachability as reachability
    from odradek.clients.admin import reassignments as reassignments
    from odradek.clients.admin import topics as topics
    from odradek.clients.admin import transactions as transactions
    from odradek.clients.admin import users as users
else:
    acls = Family("odradek.clients.admin.acls")
    api_versions = Family("odradek.clients.admin.api_versions")
    cluster = Family("odradek.clients.admin.cluster")
    configs = Family("odradek.clients.admin.configs")
    examination = Family("odradek.clients.admin.examination")
    group_offsets = Family("odradek.clients.admin.group_offsets")
    groups = Family("odradek.clients.admin.groups")
    log_dirs = Family("odradek.clients.admin.log_dirs")
    offsets = Family("odradek.clients.admin.offsets")
    reachability = Family("odradek.clients.admin.reachability")
    reassignments = Family("odradek.clients.admin.reassignments")
    topics = Family("odradek.clients.admin.topics")
    transactions = Family("odradek.clients.admin.transactions")
    users = Family("odradek.clients.admin.users")
