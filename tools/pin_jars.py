"""Write the committed list of jars of one Kafka version: ``tools/pin_jars.py 4.3.1``.

Ivy resolves the broker, the console tools and an slf4j binding with all their dependencies; the
result goes to ``src/odradek/testing/jars/kafka-<version>.txt``, one jar a line: coordinates and
SHA-256. Later downloads are compared with that list, so run this only to add a version, and read
the difference before it is committed. A version in `TOOLS_OF`, whose console tools aren't
published, has none: another version's tools run, with that version's jars.

Ivy is a part of PySpark and takes the newest version of each module. jgo, which downloads the
listed jars, doesn't: with the broker of Kafka 4.4.0 it resolved kafka-clients 3.9.1.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from odradek.testing.jars import LISTS, TOOLS_OF
from odradek.testing.java import java_home

LOG4J = "2.25.4"  # the binding for slf4j 1.7, which Kafka 4 uses; without it the log is empty
# Connect is no part of a broker, and depends on a web server.
EXCLUDED = [
    ("org.apache.kafka", module)
    for module in ("connect-runtime", "connect-api", "connect-json", "connect-transforms")
]
EXCLUDED += [("org.slf4j", "slf4j-reload4j")]  # Kafka 3's binding: slf4j would pick one at random

# Without a host, Ivy uses its default Maven repository.
SETTINGS = """\
<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" checkmodified="false"/>
</resolvers></ivysettings>
"""


def ivy_xml(version: str) -> str:
    """Return an Ivy module that depends on the broker, its logging and the console tools."""
    wanted = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
    ]
    if version not in TOOLS_OF:
        wanted.append(("org.apache.kafka", "kafka-tools", version))
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="default->runtime,master"/>'
        for org, name, rev in wanted
    )
    excludes = "".join(f'<exclude org="{org}" module="{name}"/>' for org, name in EXCLUDED)
    return (
        '<ivy-module version="2.0"><info organisation="odradek" module="pin"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}{excludes}</dependencies></ivy-module>"
    )


def pin(version: str) -> list[str]:
    """Resolve and download all jars once; return the lines of the list."""
    with tempfile.TemporaryDirectory(prefix="odradek-pin-") as name:
        work = Path(name)
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        (work / "ivy.xml").write_text(ivy_xml(version))
        (work / "settings.xml").write_text(SETTINGS)
        command = [
            str(java_home() / "bin" / "java"), "-jar", str(ivy),
            "-settings", str(work / "settings.xml"), "-cache", str(work / "cache"),
            "-ivy", str(work / "ivy.xml"),
            "-retrieve", f"{work}/jars/[organisation]/[module]/[revision]/[artifact].[ext]",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=sys.stderr)
        lines = []
        for jar in sorted((work / "jars").rglob("*.jar")):
            organisation, module, revision = jar.relative_to(work / "jars").parts[:3]
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            lines.append(f"{organisation}:{module}:{revision} {digest}")
        return lines


def main() -> None:
    """Write the lists of the Kafka versions given as arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+")
    for version in parser.parse_args().versions:
        lines = pin(version)
        target = LISTS / f"kafka-{version}.txt"
        target.write_text("\n".join(lines) + "\n")
        print(f"{target}: {len(lines)} jars")


if __name__ == "__main__":
    main()
