"""Reads what contrib/ has for containers, for tests/cli/deploy.bats.

deploy.py parse                  every YAML and JSON file of contrib/ is one, without a key twice
deploy.py args NAME              the arguments of mcp-valet in base, sidecar or compose, one a line
deploy.py probes NAME            the paths that base or sidecar probes at the admin port, one a line
deploy.py commands               the command lines in the client snippets, one a line
deploy.py check                  what the Kubernetes files say of each other fits together
"""
import json
import pathlib
import re
import sys

import yaml

contrib = pathlib.Path(sys.argv[0]).parent.parent.parent / "contrib"


class Strict(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(map(str, keys))), f"a key stands twice: {node.start_mark}"
        return super().construct_mapping(node, deep)


def load(path):
    text = (contrib / path).read_text()
    return json.loads(text) if str(path).endswith(".json") else yaml.load(text, Strict)


def containers(name):
    path = {"base": "kubernetes/base/deployment.yaml", "sidecar": "kubernetes/sidecar/patch.yaml"}[name]
    return {c["name"]: c for c in load(path)["spec"]["template"]["spec"]["containers"]}


def valet(name):
    if name == "compose":
        return {"args": load("compose.yaml")["services"]["valet"]["command"]}
    return containers(name)["mcp-valet"]


def seconds(text):
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m|h)", text).groups()
    return float(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def check():
    deployment = load("kubernetes/base/deployment.yaml")
    service = load("kubernetes/base/service.yaml")["spec"]
    network = load("kubernetes/base/network-policy.yaml")["spec"]
    base = load("kubernetes/base/kustomization.yaml")
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"], service["selector"], network["podSelector"]["matchLabels"]):
        assert selector and selector.items() <= labels.items(), selector

    for resource in base["resources"]:
        assert (contrib / "kubernetes/base" / resource).exists(), resource
    assert (contrib / "kubernetes/sidecar" / load("kubernetes/sidecar/kustomization.yaml")["patches"][0]["path"]).exists()

    for name in ("base", "sidecar"):
        container = valet(name)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        arguments = " ".join(container["args"])
        for probe in ("livenessProbe", "readinessProbe"):
            assert f"--admin=0.0.0.0:{ports[container[probe]['httpGet']['port']]} " in arguments, probe
        assert f"--listen=0.0.0.0:{ports['mcp']} " in arguments
    ports = {port["name"] for port in valet("base")["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports
    assert {port["port"] for rule in network["ingress"] for port in rule["ports"]} == ports
    assert pod["metadata"]["annotations"]["prometheus.io/port"] in arguments

    mounts = {mount["name"]: mount["mountPath"] for mount in valet("base")["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert volumes["policy"]["configMap"]["name"] == base["configMapGenerator"][0]["name"]
    for option, volume in (("--policy=", "policy"), ("--key-file=", "keys")):
        path = [a for a in valet("base")["args"] if a.startswith(option)][0].removeprefix(option)
        assert path.startswith(mounts[volume] + "/"), path
    assert volumes["keys"]["secret"]["defaultMode"] & 0o27 == 0

    deadlines = load("kubernetes/base/policy.yaml")["deadlines"]
    least = seconds(deadlines["shutdown"]) + 3 * seconds(deadlines["exit"]) + 3
    assert pod["spec"]["terminationGracePeriodSeconds"] > least
    assert seconds(load("compose.yaml")["services"]["valet"]["stop_grace_period"]) > least


def commands():
    for path in sorted(contrib.glob("snippets/*.json")):
        for servers in load(path.relative_to(contrib)).values():
            for server in servers.values():
                assert ("url" in server) != ("command" in server), path
                if "command" in server:
                    print(" ".join([server["command"], *server["args"]]))


action, *name = sys.argv[1:]
if action == "parse":
    files = [path for pattern in ("**/*.yaml", "**/*.json") for path in contrib.glob(pattern)]
    assert len(files) > 10
    for path in files:
        assert load(path.relative_to(contrib)), path
elif action == "args":
    print("\n".join(valet(*name)["args"]))
elif action == "probes":
    print("\n".join(valet(*name)[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")))
elif action == "commands":
    commands()
elif action == "check":
    check()
else:
    sys.exit(__doc__)
