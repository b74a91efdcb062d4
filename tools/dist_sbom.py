"""Write the bill of materials as CycloneDX 1.6, next to a distribution and in wheels (PEP 770).

In: pyproject.toml's tables, the versions of compiler and translator. Out: JSON that is the same for
the same input, so it has no serial number and no time. The wheels contain no third-party libraries:
dependencies are listed with the version ranges that pip reads, the build tools with their versions.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

NAME = re.compile(r"^[A-Za-z0-9._-]+")
LEFT_OUT = {"all", "dev", "demo"}
"""Extras that combine other extras, or that only Odradek's developers need."""


def sbom(project: Mapping[str, Any], tools: Mapping[str, str]) -> str:
    """Return the bill of materials of a pyproject table; `tools` are versions by package."""
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    extras = project["optional-dependencies"]
    optional = [one for name in extras if name not in LEFT_OUT for one in extras[name]]
    components: dict[str, Any] = {}
    for requirements, scope in ((project["dependencies"], "required"), (optional, "optional")):
        for requirement in requirements:
            one = component(requirement, scope)
            if one["name"] != project["name"]:
                components.setdefault(one["bom-ref"], one)
    required = sorted(ref for ref, one in components.items() if one["scope"] == "required")
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            },
            "tools": {
                "components": [
                    {"type": "application", "name": name, "version": tools[name],
                     "purl": f"pkg:pypi/{name}@{tools[name]}"}
                    for name in sorted(tools)
                ]
            },
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [
            {"ref": own, "dependsOn": required},
            *({"ref": ref} for ref in sorted(components)),
        ],
    }  # fmt: skip
    return json.dumps(bill, indent=1) + "\n"


def component(requirement: str, scope: str) -> dict[str, Any]:
    """Return one requirement as a component; its version range is a property, as pip chooses."""
    found = NAME.match(requirement)
    name = re.sub(r"[-_.]+", "-", found[0] if found else requirement).lower()
    return {
        "type": "library", "bom-ref": f"pkg:pypi/{name}", "name": name, "scope": scope,
        "purl": f"pkg:pypi/{name}",
        "properties": [{"name": "odradek:requirement", "value": requirement}],
    }  # fmt: skip
