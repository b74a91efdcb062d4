"""Files in `examples` that aren't programs: pages, requirements, manifests, vendors' settings."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from packaging.requirements import Requirement
from tests.unit.test_pages import dead_links

import odradek
from odradek.common.options.properties import parse_properties

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCHEMAS = Path(__file__).parent / "schemas"
FOLDERS = sorted(page.parent for page in EXAMPLES.glob("*/README.md"))
SMALL = [folder for folder in FOLDERS if (folder / "requirements.txt").exists()]
SPARK, COMPOSE = EXAMPLES / "spark_kubernetes", EXAMPLES / "compose"
PROGRAM_LINES = 100
VENDORS = ("msk", "event_hubs")
AZURE = "Endpoint=sb://orders.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0="
ENTRA = {
    "EVENT_HUBS_NAMESPACE": "orders",
    "AZURE_TENANT_ID": "11111111-2222-3333-4444-555555555555",
    "AZURE_CLIENT_ID": "client",
    "AZURE_CLIENT_SECRET": "c2VjcmV0=",
}
MSK = "b-1.orders.abc.c2.kafka.eu-west-1.amazonaws.com:9098"


def named(folder: Path) -> str:
    return folder.name


def test_every_folder_is_in_the_list_of_examples() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\[(\w+)]\(\1\)", text)) == set(map(named, FOLDERS))
    assert {path.parent for path in EXAMPLES.glob("*/*.*")} == set(FOLDERS)


@pytest.mark.parametrize("folder", [EXAMPLES, *FOLDERS], ids=named)
def test_links_in_the_examples_have_targets(folder: Path) -> None:
    assert list(dead_links(folder / "README.md")) == []


@pytest.mark.parametrize("folder", SMALL, ids=named)
def test_an_example_is_short_and_lists_its_requirements(folder: Path) -> None:
    for program in folder.glob("*.py"):
        assert len(program.read_text().splitlines()) < PROGRAM_LINES, program
    lines = (folder / "requirements.txt").read_text().splitlines()
    wanted = {it.name: it for it in (Requirement(line.partition("#")[0]) for line in lines)}
    assert odradek.__version__ in wanted["odradek"].specifier
    assert all(">=" in str(it.specifier) for it in wanted.values())


def texts(value: Any, key: str) -> Iterator[str]:
    """Yield all strings that nested data has under a key, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        for inner in value.values():
            yield from texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)


def faults(document: Any, schema: dict[str, Any]) -> list[str]:
    found = jsonschema_rs.Draft7Validator(schema).iter_errors(document)
    return [f"{error.instance_path}: {error.message}" for error in found]


# Kubernetes


def manifest_faults(manifest: Mapping[str, Any]) -> list[str]:
    """Return violations of Kubernetes' schema for the object's kind, including unknown fields."""
    schemas = json.loads((SCHEMAS / "kubernetes.json").read_text())
    ends = f".{manifest['kind']}"
    [ours] = [n for n in schemas["$defs"] if n.startswith("io.k8s.api.") and n.endswith(ends)]
    return faults(manifest, {"$ref": f"#/$defs/{ours}", **schemas})


def manifests() -> dict[str, Any]:
    """Return the Kubernetes manifests by kind; there is one of each kind."""
    found = list(yaml.safe_load_all((SPARK / "manifests.yaml").read_text()))
    by_kind = {it["kind"]: it for it in found}
    assert len(by_kind) == len(found) == 7
    return by_kind


@pytest.mark.parametrize("kind", sorted(manifests()))
def test_a_kubernetes_manifest_fits_the_schema_of_its_kind(kind: str) -> None:
    manifest = manifests()[kind]
    assert manifest_faults(manifest) == []
    assert manifest_faults({**manifest, "sepc": {}})
    assert manifest_faults({**manifest, "apiVersion": "v0"})


def test_a_misspelt_field_of_a_kubernetes_probe_is_found() -> None:
    manifest = manifests()["Deployment"]
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    container["livenessProbe"]["httpGet"]["prot"] = container["livenessProbe"]["httpGet"].pop(
        "port"
    )
    assert len(manifest_faults(manifest)) == 2


def test_manifests_refer_to_each_other_by_the_right_names() -> None:
    kinds = manifests()
    name = {kind: it["metadata"]["name"] for kind, it in kinds.items()}
    binding, service, settings = kinds["RoleBinding"], kinds["Service"], kinds["ConfigMap"]["data"]
    assert binding["roleRef"]["name"] == name["Role"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name["ServiceAccount"]}]
    pod = kinds["Deployment"]["spec"]["template"]
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert pod["spec"]["serviceAccountName"] == name["ServiceAccount"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == name["ConfigMap"]
    assert (
        volumes["checkpoints"]["persistentVolumeClaim"]["claimName"]
        == (name["PersistentVolumeClaim"])
    )
    [container] = pod["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == set(volumes)
    assert settings["CHECKPOINT"].startswith(f"{mounts['checkpoints']}/")
    [file] = [arg for arg in container["args"] if arg.startswith(mounts["settings"])]
    assert file.removeprefix(f"{mounts['settings']}/") in settings
    environment = {it["name"]: it["valueFrom"] for it in container["env"]}
    for variable, source in environment.items():
        if "configMapKeyRef" in source:
            assert source["configMapKeyRef"] == {"name": name["ConfigMap"], "key": variable}
            assert variable in settings
    program = (SPARK / "copy_orders.py").read_text()
    asked = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", program))
    assert asked == set(environment) - {"POD_NAME"}


def test_ports_images_and_probes_agree_with_the_spark_settings() -> None:
    kinds = manifests()
    spark = parse_properties(kinds["ConfigMap"]["data"]["spark.properties"])
    [container] = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    served = {port["name"]: port["port"] for port in kinds["Service"]["spec"]["ports"]}
    assert served == {name: port for name, port in ports.items() if name != "ui"}
    assert ports == {
        "driver": int(spark["spark.driver.port"]),
        "blocks": int(spark["spark.driver.blockManager.port"]),
        "ui": int(spark["spark.ui.port"]),
    }
    host = f"{kinds['Service']['metadata']['name']}.{spark['spark.kubernetes.namespace']}.svc"
    assert spark["spark.driver.host"] == host
    assert (
        spark["spark.kubernetes.authenticate.executor.serviceAccountName"]
        == (kinds["ServiceAccount"]["metadata"]["name"])
    )
    image = spark["spark.kubernetes.container.image"]
    assert list(texts(list(kinds.values()), "image")) == [image]
    assert re.fullmatch(r"[\w./-]+:[\w.-]+", image)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    made = (SPARK / "Dockerfile").read_text()
    assert f"COPY examples/spark_kubernetes/copy_orders.py {container['args'][-1][8:]}\n" in made
    user = kinds["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"\nUSER {user}\n" in made
    bases = re.findall(r"^FROM (\S+)", made, re.MULTILINE)
    assert all(re.fullmatch(r"[\w/-]+:\d[\w.-]+", base) for base in bases)


# Compose


def compose() -> Any:
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())


def test_the_compose_file_fits_the_schema() -> None:
    schema, ours = json.loads((SCHEMAS / "compose.json").read_text()), compose()
    assert faults(ours, schema) == []
    ours["services"]["clock"]["depends_on"]["kafka-1"]["condition"] = "service_is_well"
    assert faults(ours, schema)
    del ours["services"]["clock"]["depends_on"]
    ours["services"]["clock"]["enviroment"] = {}
    assert faults(ours, schema)


def listeners(text: str) -> dict[str, tuple[str, str]]:
    """Parse a list of Kafka listeners; return host and port by listener name."""
    return {name: (host, port) for name, host, port in re.findall(r"(\w+)://([\w-]*):(\d+)", text)}


def test_listeners_of_the_compose_file_agree_with_their_addresses() -> None:
    services = compose()["services"]
    brokers = {name: it for name, it in services.items() if name.startswith("kafka-")}
    voters = []
    for name, broker in brokers.items():
        environment = broker["environment"]
        bound, told = (
            listeners(environment[f"KAFKA_{which}LISTENERS"]) for which in ("", "ADVERTISED_")
        )
        protocols = environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"]
        assert set(bound) == {one.partition(":")[0] for one in protocols.split(",")}
        controller = environment["KAFKA_CONTROLLER_LISTENER_NAMES"]
        assert set(told) == set(bound) - {controller}
        assert told[environment["KAFKA_INTER_BROKER_LISTENER_NAME"]] == (name, bound["INSIDE"][1])
        assert broker["ports"] == [f"127.0.0.1:{told['OUTSIDE'][1]}:{bound['OUTSIDE'][1]}"]
        assert broker["hostname"] == name
        assert f"$$HOSTNAME:{bound['INSIDE'][1]}" in broker["healthcheck"]["test"][1]
        [volume] = broker["volumes"]
        assert volume == f"{name}:{environment['KAFKA_LOG_DIRS']}"
        voters.append(f"{environment['KAFKA_NODE_ID']}@{name}:{bound[controller][1]}")
        assert all(isinstance(value, str) for value in environment.values())
    assert {it["environment"]["KAFKA_CONTROLLER_QUORUM_VOTERS"] for it in brokers.values()} == {
        ",".join(voters)
    }
    assert len({it["environment"]["KAFKA_ADVERTISED_LISTENERS"] for it in brokers.values()}) == 3
    assert set(compose()["volumes"]) == set(brokers) == set(services["clock"]["depends_on"])
    assert services["clock"]["environment"]["KAFKA"] == ",".join(f"{n}:9092" for n in brokers)
    images = set(texts(services, "image"))
    assert all(re.fullmatch(r"[\w/-]+:\d[\w.-]+", image) for image in images)
    sources = [it.partition(":")[0] for it in services["clock"]["volumes"]]
    assert [(COMPOSE / it).resolve() for it in sources] == [COMPOSE, EXAMPLES.parent / "dist"]


# Settings for hosted Kafka services


def settings_of(vendor: str, environment: Mapping[str, str]) -> dict[str, str]:
    program = runpy.run_path(str(EXAMPLES / vendor / "orders.py"))
    found: dict[str, str] = program["settings"](environment)
    return found


@pytest.mark.parametrize(
    ("vendor", "environment", "wanted"),
    [
        ("msk", {"MSK_BROKERS": MSK}, {"sasl.mechanism": "AWS_MSK_IAM"}),
        (
            "msk",
            {"MSK_BROKERS": MSK, "AWS_ROLE_ARN_FOR_KAFKA": "arn:aws:iam::1:role/orders"},
            {"sasl.aws.msk.iam.role.arn": "arn:aws:iam::1:role/orders"},
        ),
        (
            "event_hubs",
            {"EVENT_HUBS_CONNECTION_STRING": AZURE},
            {"sasl.mechanism": "PLAIN", "sasl.username": "$ConnectionString"},
        ),
        (
            "event_hubs",
            ENTRA,
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.scope": "https://orders.servicebus.windows.net/.default",
            },
        ),
    ],
)
def test_clients_accept_the_settings_of_a_vendor(
    vendor: str,
    environment: dict[str, str],
    wanted: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = settings_of(vendor, environment)
    with odradek.Producer(given) as producer:
        found = producer._calls.engine.config
        assert {name: str(found[name]) for name in wanted} == wanted
        assert found["security.protocol"] == "SASL_SSL"
    shared = {name: value for name, value in given.items() if name != "delivery.timeout.ms"}
    for client in (odradek.Consumer, odradek.Admin):
        with client(shared) as other:
            [address] = other.explain().addresses
            assert address.address == given["bootstrap.servers"]
            assert "c2VjcmV0" not in repr(other)
    assert caplog.records == [], "nothing in the settings is idle"


def test_an_azure_connection_string_without_an_endpoint_is_rejected() -> None:
    with pytest.raises(SystemExit, match="no Endpoint"):
        settings_of("event_hubs", {"EVENT_HUBS_CONNECTION_STRING": "AccountName=orders"})
