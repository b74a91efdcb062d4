"""Import optional packages, or raise an error that names the extra that installs them.

In: names of modules that need such a package. Out: the imported modules, or a `MissingExtraError`
that names the extra to install. Must not: hide that an installed package is broken.
"""

from __future__ import annotations

from importlib import import_module

from odradek.common.errors import MissingExtraError

OPTIONAL = {
    "cryptography": ("PKCS12 stores, signed assertions and certificates for tests need", "stores"),
    "fastavro": ("Avro needs", "schemas"),
    "google": ("Protobuf needs", "schemas"),
    "jsonschema_rs": ("JSON Schema needs", "schemas"),
    "opentelemetry": ("Metrics and traces for OpenTelemetry need", "opentelemetry"),
    "prometheus_client": ("PrometheusCollector needs", "prometheus"),
    "pyarrow": ("Arrow data needs", "arrow"),
    "rich": ("The command odradek needs", "cli"),
    "typer": ("The command odradek needs", "cli"),
}
"""By a package's top-level name: which feature needs the package, and which extra installs it."""
DISTRIBUTIONS = {"google": "protobuf", "jsonschema_rs": "jsonschema-rs"}
"""By a module's top-level name: the distribution, if it has another name."""
SHARED = ("google", "opentelemetry")
"""Top-level names that several distributions share, of which one may be missing."""


def require_extra(*modules: str) -> None:
    """Import modules that may need an optional package.

    Raises MissingExtraError if the package belongs to an extra that isn't installed.
    """
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in OPTIONAL or (error.name != package and package not in SHARED):
                raise  # a module within the package is missing
            what, extra = OPTIONAL[package]
            named = DISTRIBUTIONS.get(package, package)
            raise MissingExtraError(
                f"{what} the package {named}: pip install 'odradek[{extra}]'"
            ) from None
