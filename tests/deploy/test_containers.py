"""The manifest and the image: what they say about the service is true of it, and nothing in them dangles.

No cluster and no container runtime takes part; what is checked is what can be wrong without one. What was built
and run by hand is in docs/deploy.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.surfaces.http.app import ROUTES
from tests.support.shared import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Json = dict[str, Any]
DEPLOY = REPOSITORY / "deploy"
DOCUMENTS: tuple[Json, ...] = tuple(
    document
    for path in sorted(DEPLOY.glob("k3s/*.yaml"))
    for document in yaml.safe_load_all(path.read_text("utf-8"))
    if document
)
NAMES = [f"{document['kind']} {document['metadata']['name']}" for document in DOCUMENTS]


def one(kind: str, name: str = "rkllm-mcp") -> Json:
    """The document of a kind and name."""
    return next(each for each in DOCUMENTS if (each["kind"], each["metadata"]["name"]) == (kind, name))


@pytest.fixture
def pod() -> Json:
    """What a board runs."""
    return one("StatefulSet")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Json) -> Json:
    """The service in it."""
    [found] = pod["containers"]
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_a_document_names_its_kind_and_its_selectors_find_the_pods(document: Json) -> None:
    assert {"apiVersion", "kind", "metadata"} <= set(document)
    spec = document.get("spec", {})
    if "template" in spec:
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
    elif document["kind"] in {"Service", "PodDisruptionBudget"}:
        labels = one("StatefulSet")["spec"]["template"]["metadata"]["labels"]
        wanted = spec["selector"].get("matchLabels", spec["selector"])
        assert wanted.items() <= labels.items()
        assert document["metadata"]["namespace"] == one("StatefulSet")["metadata"]["namespace"]


def test_the_documents_fit_kubernetes_own_schemas() -> None:
    # It has the schemas of thirteen releases, 22 MB, and is therefore no part of the tests' own packages.
    pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not here: pip install kubernetes-validate"
    )
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", *map(str, DEPLOY.glob("k3s/*.yaml"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_pod_has_no_rights_but_its_device(pod: Json, container: Json) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "procMount": "Unmasked",
    }
    assert pod["hostUsers"] is False, "Kubernetes refuses an unmasked /proc without a user namespace"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    [device] = [name for name in container["resources"]["limits"] if "/" in name]
    plugin = one("DaemonSet", "npu-devices")["spec"]["template"]["spec"]
    [offered] = [yaml.safe_load(word) for word in plugin["containers"][0]["args"] if not word.startswith("--")]
    assert device == f"squat.ai/{offered['name']}"
    assert plugin["nodeSelector"].items() <= pod["nodeSelector"].items()
    offered_paths = [path["path"] for group in offered["groups"] for path in group["paths"]]
    assert offered_paths == ["/dev/dri/card1", "/dev/dri/renderD129"], "the runtime goes over the cards"
    docker = re.findall(
        r"(--device|--group-add|--security-opt) (\S+)", (REPOSITORY / "docs/deploy.md").read_text("utf-8")
    )
    assert [path for option, path in docker if option == "--device"] == offered_paths
    assert ("--security-opt", "systempaths=unconfined") in docker
    assert len([group for option, group in docker if option == "--group-add"]) == len(offered_paths)


def test_every_volume_exists_and_written_files_lie_on_one(pod: Json, container: Json) -> None:
    claims = [claim["metadata"]["name"] for claim in one("StatefulSet")["spec"]["volumeClaimTemplates"]]
    volumes = [volume["name"] for volume in pod["volumes"]] + claims
    mounts: Mapping[str, Json] = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert sorted(mounts) == sorted(volumes)
    assert {name for name, mount in mounts.items() if not mount.get("readOnly")} == {"state", "tmp"}
    values = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    state = mounts["state"]["mountPath"]
    for name in ("HOME", "RKLLM_MCP_STATE", "XDG_CACHE_HOME"):
        assert Path(values[name]).is_relative_to(state)
    assert values["RKLLM_MCP_MODELS"] == mounts["models"]["mountPath"]


def test_the_configuration_can_be_used_and_fits_the_pod(pod: Json, container: Json, tmp_path: Path) -> None:
    [(name, text)] = one("ConfigMap")["data"].items()
    file = tmp_path / name
    file.write_text(text, "utf-8")
    secrets = {entry["name"] for entry in container["env"] if "valueFrom" in entry}
    assert set(re.findall(r"\$\{(\w+)\}", text)) == secrets
    config = load_config(str(file), env=dict.fromkeys(secrets, "sk-rkllm-0123456789"))
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"] == ["--config", f"{mounts['config']}/{name}", "serve"]
    assert config.runtime.library == mounts["runtime"]
    assert config.service.api_keys == ("sk-rkllm-0123456789",)
    [port] = container["ports"]
    assert config.service.port == port["containerPort"]
    assert {
        each["targetPort"] for service in DOCUMENTS if service["kind"] == "Service" for each in service["spec"]["ports"]
    } == {port["name"]}
    started_s = container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
    assert started_s > config.runtime.start_timeout_s
    slept_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    # What has been answered may be on its way for 5 seconds more, and the model is closed.
    assert pod["terminationGracePeriodSeconds"] >= slept_s + config.service.drain_s + 15


def test_the_probes_ask_routes_that_need_no_key(container: Json) -> None:
    open_paths = {route.path for route in ROUTES if route.is_open}
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {name: get["path"] for name, get in asked.items()} == {
        "startup": "/readyz",
        "readiness": "/readyz",
        "liveness": "/healthz",
    }
    (healthcheck,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    assert f":{container['ports'][0]['containerPort']}{asked['liveness']['path']}'" in healthcheck
    for get in asked.values():
        assert get["path"] in open_paths
        assert 503 in next(route.problems for route in ROUTES if route.path == get["path"])
        # The pod's own address is no name that the board knows, once allowed_hosts are set.
        assert get["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


# --- the image -------------------------------------------------------------------------------------------------------


def instructions() -> Iterator[tuple[str, str]]:
    """The Dockerfile's instructions, lines that go on joined."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def test_the_image_has_all_bytecode_because_a_container_writes_none() -> None:
    steps = list(instructions())
    last_stage = steps[max(index for index, (name, _) in enumerate(steps) if name == "FROM") :]
    (install,) = [rest for name, rest in last_stage if name == "RUN" and "pip install" in rest]
    assert "pip install --compile " in install
    assert "python -m compileall -q " in install
    # Set any earlier, pip and compileall would write none either.
    (written,) = [index for index, (_, rest) in enumerate(last_stage) if "PYTHONDONTWRITEBYTECODE=1" in rest]
    assert written > last_stage.index(("RUN", install))


def is_sent(path: str) -> bool:
    """Whether the image is built from a path: the last pattern that fits it, or a folder above it, decides."""
    sent = True
    for line in (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!")
        above = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 2)]
        if pattern and not line.startswith("#") and any(fnmatch(each, pattern.replace("**/", "*")) for each in above):
            sent = line.startswith("!")
    return sent


def test_the_image_is_built_from_everything_that_the_wheel_is_made_of_and_nothing_large() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"]]
    needed += [*project["project"]["license-files"], "pyproject.toml", "models/demo/demo.rkllm"]
    assert [path for path in needed if not is_sent(path)] == []
    unwanted = [".git", ".venv/bin/python", "tests/conftest.py", "models/qwen3-1.7b/qwen.rkllm", "native/build/x.so"]
    assert [path for path in unwanted if is_sent(path)] == []


def test_the_image_runs_as_the_pods_user_where_the_pod_mounts(pod: Json, container: Json) -> None:
    said = list(instructions())
    assert ("USER", f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}") in said
    environment = dict(re.findall(r"(\w+)=(\S+)", next(rest for name, rest in said if name == "ENV")))
    values = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert values.items() <= environment.items()
    assert ("VOLUME", environment["HOME"]) in said
    assert ("EXPOSE", str(container["ports"][0]["containerPort"])) in said
    assert ("CMD", str(container["args"]).replace("'", '"')) in said
    assert [rest for name, rest in said if name == "FROM"][-1].startswith("python:3.")
    # A first process that takes leave of the orphans of tool servers; the pod keeps it.
    assert ("ENTRYPOINT", '["tini", "--", "rkllm-mcp"]') in said
    assert any("install" in rest and " tini " in rest for name, rest in said if name == "RUN")
    assert "command" not in container
