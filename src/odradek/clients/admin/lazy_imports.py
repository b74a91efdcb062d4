"""Import the modules of admin calls on first use.

In: an attribute of a module's proxy (`topics`, `configs` …). Out: the module's attribute of this
name. Each module imports up to ten modules of messages, and most programs use one or two. Must not:
import a module before its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.common.errors import first_use


class LazyModule:
    """Proxy of a module, which is imported on first use."""

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
    acls = LazyModule("odradek.clients.admin.acls")
    api_versions = LazyModule("odradek.clients.admin.api_versions")
    cluster = LazyModule("odradek.clients.admin.cluster")
    configs = LazyModule("odradek.clients.admin.configs")
    examination = LazyModule("odradek.clients.admin.examination")
    group_offsets = LazyModule("odradek.clients.admin.group_offsets")
    groups = LazyModule("odradek.clients.admin.groups")
    log_dirs = LazyModule("odradek.clients.admin.log_dirs")
    offsets = LazyModule("odradek.clients.admin.offsets")
    reachability = LazyModule("odradek.clients.admin.reachability")
    reassignments = LazyModule("odradek.clients.admin.reassignments")
    topics = LazyModule("odradek.clients.admin.topics")
    transactions = LazyModule("odradek.clients.admin.transactions")
    users = LazyModule("odradek.clients.admin.users")
