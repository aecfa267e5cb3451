"""Claims about the Helm chart: what it renders is what Kubernetes takes, and what raftlog starts with."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from raftlog.base.config import NodeConfig, load_config, parse_file
from raftlog.node import CONTROLLED_SHUTDOWN_S
from raftlog.process import STOP_S
from raftlog.quorum.auto_join import own_address
from tests.deploy.chart import CHART, ROOT, Refused, Release, needs_helm, needs_rules, render, tool

pytestmark = needs_helm

TLS = {"enabled": True, "secretName": "certificates"}
EXTERNAL = {"enabled": True, "host": "kafka-{}.example.com"}
OBJECTS = ["PodDisruptionBudget", "Secret", "Secret", "Service", "Service", "ServiceAccount", "StatefulSet"]
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one": {"replicas": 1, "voters": 1},
    "five": {"replicas": 5, "voters": 5},
    "more-nodes-than-voters": {"replicas": 7},
    "voters-grown": {"replicas": 5, "voters": 5, "dynamicVoters": True, "initialVoters": 3},
    "voters-shrunk": {"replicas": 5, "voters": 3, "dynamicVoters": True, "initialVoters": 5},
    "tls-and-logins": {"tls": TLS, "sasl": {"enabled": True, "users": {"admin": "a = b"}}},
    "pem-in-one-file": {"tls": TLS | {"combinedKey": "tls-combined.pem", "controllers": False}},
    "load-balancers": {"external": EXTERNAL | {"annotations": {"dns": "kafka-{}.example.com"}}},
    "node-ports": {"external": EXTERNAL | {"type": "NodePort", "host": "node.example.com"}},
    "monitoring": {
        "tls": TLS,
        "monitoring": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    },
    "all-else": {
        "existingSecret": "mine",
        "rack": "host",
        "antiAffinity": "required",
        "zoneSpread": "DoNotSchedule",
        "networkPolicy": {"enabled": True},
        "external": EXTERNAL,
        "podLabels": {"team": "logs"},
        "podAnnotations": {"note": "yes"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "logs", "operator": "Exists"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "pull"}],
        "persistence": {"storageClass": "fast"},
        "serviceAccount": {"create": False},
        "extraEnv": [{"name": "RAFTLOG_NUM_PARTITIONS", "value": "6"}],
    },
}


def config_of(release: Release, pod: str) -> NodeConfig:
    """Return the config that a pod's node has, as it reads file and variables."""
    path = release.arguments(pod)[-1]
    environment = release.environment(pod, {"topology.kubernetes.io/zone": "a"})
    secrets = {name: "s" * 32 for name in environment if name.endswith("_FILE")}
    environment = {name: text for name, text in environment.items() if name not in secrets}
    environment |= {name.removesuffix("_FILE"): text for name, text in secrets.items()}
    return load_config(
        parse_file(release.files({"mine": {}, "certificates": {}})[path], name=path), environment=environment
    )


@needs_rules
@pytest.mark.parametrize("name", CASES)
def test_kubernetes_takes_what_is_rendered(name: str) -> None:
    """By the API server's own validation: no unknown field, and no name that leads nowhere."""
    rules = tool("kubernetes-rules")
    assert rules is not None
    judged = subprocess.run([rules], input=render(CASES[name]), capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert int(judged.stdout.split()[0]) == len(Release(render(CASES[name])).objects)


@needs_rules
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("maxUnavailable: 1", "maxUnavailible: 1", "unknown field"),
        ("name: tmp, mountPath", "name: tpm, mountPath", "Not found"),
        ("mountPath: /tmp", "mountPath: /run/raftlog", "must be unique"),
        ("port: 9092", "port: 99092", "between 1 and 65535"),
        ("whenUnsatisfiable: ScheduleAnyway", "whenUnsatisfiable: Never", "supported values"),
    ],
)
def test_the_rules_refuse_what_kubernetes_would(right: str, wrong: str, words: str) -> None:
    """Otherwise the test above could not fail."""
    text = render({})
    assert right in text
    rules = tool("kubernetes-rules")
    assert rules is not None
    judged = subprocess.run(
        [rules], input=text.replace(right, wrong), capture_output=True, text=True, check=False
    )
    assert judged.returncode == 1
    assert words in judged.stdout


@pytest.mark.parametrize("name", CASES)
def test_every_pod_has_a_config_that_its_node_starts_with(name: str) -> None:
    """Each setting is a setting of raftlog. Voters are the first nodes, by the names of their pods.

    A voter also lists first voters that have left, and counts them until the metadata holds the voters.
    """
    release = Release(render(CASES[name]))
    voters = CASES[name].get("voters", 3)
    initial = CASES[name].get("initialVoters", voters)
    begin = min(voters, initial)
    for number, pod in enumerate(release.pods):
        config = config_of(release, pod)
        warned = {each.event for each in config.warnings}
        joins = {"controller_is_observer"} if begin <= number < voters else set()
        assert warned == joins | (set() if "tls" in CASES[name] else {"admin_tokens_without_tls"})
        assert config.node_id == number
        assert ("controller" in config.roles) == (number < voters)
        assert config.voters == {
            voter: (f"raftlog-{voter}.raftlog-headless.logs.svc.cluster.local", 9093)
            for voter in range(initial if number < voters else begin)
        }
        assert config.controller_quorum_auto_join_enable == CASES[name].get("dynamicVoters", False)
        assert config.advertised_listeners[0].host == f"{pod}.raftlog-headless.logs.svc.cluster.local"
        assert config.log_dirs == ("/var/lib/raftlog/data",)
        assert config.default_replication_factor == min(3, len(release.pods))


def test_a_pod_that_begins_to_vote_says_where_it_is() -> None:
    """It is in no list of voters: other nodes reach it by its advertised host, at the controllers' port."""
    release = Release(render(CASES["voters-grown"]))
    config = config_of(release, "raftlog-4")
    assert own_address(config) == ("raftlog-4.raftlog-headless.logs.svc.cluster.local", 9093)


def test_another_number_of_voters_restarts_the_pods() -> None:
    """Their roles are in a Secret, which no StatefulSet looks at; static voters leave the pods as they are."""
    grown = CASES["voters-grown"]
    before, after = (Release(render({**grown, "voters": voters})) for voters in (3, 5))
    pods = [each.one("StatefulSet")["spec"]["template"] for each in (before, after)]
    assert pods[0]["metadata"]["annotations"] != pods[1]["metadata"]["annotations"]
    stateful = after.one("StatefulSet")["metadata"]["annotations"]
    assert (stateful["raftlog/voters"], stateful["raftlog/initial-voters"]) == ("5", "3")
    assert "raftlog/voters" not in str(Release(render({})).one("StatefulSet")["spec"]["template"])


def test_the_defaults_are_these_objects() -> None:
    """By default there is no external Service, and no object of other operators."""
    release = Release(render({}))
    assert release.kinds == OBJECTS
    assert release.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert release.one("StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"


def test_a_pod_has_no_rights_and_writes_only_its_disk() -> None:
    """No root, no capability, no token of Kubernetes, no writable path but /var/lib/raftlog and /tmp."""
    release = Release(render({}))
    assert release.template["securityContext"]["runAsNonRoot"]
    assert release.template["automountServiceAccountToken"] is False
    assert release.one("ServiceAccount")["automountServiceAccountToken"] is False
    security = release.container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    writable = {each["mountPath"] for each in release.container["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/var/lib/raftlog", "/tmp"}
    user = release.template["securityContext"]["runAsUser"]
    assert f"--uid {user} " in (ROOT / "deploy" / "Dockerfile").read_text()


def test_the_grace_period_has_room_for_a_controlled_shutdown() -> None:
    """A node gives its leaderships away, then may take STOP_S to sync its logs; only then Kubernetes may kill it."""
    grace = Release(render({"waitSafeSeconds": 0})).template["terminationGracePeriodSeconds"]
    assert grace > CONTROLLED_SHUTDOWN_S + STOP_S


def test_probes_ask_the_admin_api_as_it_speaks() -> None:
    """The paths that need no token; HTTPS where the API has a certificate."""
    for values, scheme in (({}, "HTTP"), ({"tls": TLS}, "HTTPS")):
        container = Release(render(values)).container
        asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
        assert {each["scheme"] for each in asked.values()} == {scheme}
        paths = {name: each["path"] for name, each in asked.items()}
        ready = "/v1/ready?caught_up=true"  # a pod that copies yet holds up rollouts and evictions
        assert paths == {"startup": "/v1/live", "liveness": "/v1/live", "readiness": ready}


def test_a_pod_is_stopped_only_when_it_is_safe() -> None:
    """Each stop waits: a rolling update, an eviction, a manual stop. The grace period covers the wait as well."""
    for values, scheme in (({}, "http"), ({"tls": TLS}, "https")):
        release = Release(render(values))
        command = release.container["lifecycle"]["preStop"]["exec"]["command"]
        assert command == ["raftlog", "node", "wait-safe", "--wait=300", f"--http={scheme}://localhost:9644"]
        assert release.template["terminationGracePeriodSeconds"] > 300 + CONTROLLED_SHUTDOWN_S + STOP_S
    hurried = Release(render({"waitSafeSeconds": 0}))
    assert "lifecycle" not in hurried.container
    assert hurried.template["terminationGracePeriodSeconds"] == 90


def test_a_container_that_hangs_is_restarted_soon() -> None:
    """The liveness probe has a grace period of its own, which is shorter than the hook's wait."""
    container = Release(render({})).container
    assert container["livenessProbe"]["terminationGracePeriodSeconds"] == 30
    assert "terminationGracePeriodSeconds" not in container["startupProbe"]


def test_the_rack_is_the_pods_zone() -> None:
    """On a machine without a zone the pod has no rack."""
    release = Release(render({}))
    assert config_of(release, "raftlog-0").broker_rack == "a"
    assert release.environment("raftlog-0", {})["RAFTLOG_BROKER_RACK"] == ""
    assert config_of(Release(render({"rack": "host"})), "raftlog-1").broker_rack == "machine-of-raftlog-1"
    assert config_of(Release(render({"rack": "none"})), "raftlog-1").broker_rack is None


def test_each_broker_is_reached_from_outside_at_what_it_advertises() -> None:
    """A Service with a single pod, under the advertised name and port."""
    for kind, port in (("LoadBalancer", lambda _: 9094), ("NodePort", lambda number: 31090 + number)):
        release = Release(render({"external": EXTERNAL | {"type": kind}}))
        for number, pod in enumerate(release.pods):
            advertised = config_of(release, pod).advertised_listeners[1]
            assert (advertised.host, advertised.port) == (f"kafka-{number}.example.com", port(number))
            service = release.objects["Service", f"{pod}-external"]["spec"]
            assert service["selector"]["statefulset.kubernetes.io/pod-name"] == pod
            assert service["ports"][0].get("nodePort", service["ports"][0]["port"]) == port(number)


def test_tls_and_logins_close_every_listener() -> None:
    """Passwords are in a Secret, and not in what the pods' checksum is made from."""
    values = {"tls": TLS, "external": EXTERNAL, "sasl": {"enabled": True, "users": {"admin": "first secret"}}}
    release = Release(render(values))
    config = config_of(release, "raftlog-0")
    assert {each.security_protocol for each in config.listeners} == {"SASL_SSL", "SSL"}
    assert not config.admin_tokens_without_tls and config.admin_ssl_certificate == "/etc/raftlog-tls/tls.crt"
    assert release.text.count("first secret") == len(release.pods) * 2
    values["sasl"] = {"enabled": True, "users": {"admin": "second secret"}}
    assert Release(render(values)).one("StatefulSet") == release.one("StatefulSet")


def test_a_shared_setting_restarts_pods_and_a_further_node_does_not() -> None:
    """By the checksum of the settings among the pods' annotations."""

    def annotations(values: dict[str, Any]) -> Any:
        return Release(render(values)).one("StatefulSet")["spec"]["template"]["metadata"]["annotations"]

    assert annotations({"config": {"num.partitions": 6}}) != annotations({})
    assert annotations({"replicas": 4}) == annotations({})


def test_numbers_and_lists_are_settings_as_raftlog_reads_them() -> None:
    """Helm parses every number as a float; a large number must not come out as 1.073741824e+09."""
    settings = {
        "log.segment.bytes": 1073741824,
        "log.cleaner.min.cleanable.ratio": 0.25,
        "log.cleanup.policy": ["compact", "delete"],
    }
    config = config_of(Release(render({"config": settings})), "raftlog-0")
    assert config.log_segment_bytes == 1073741824
    assert config.log_cleaner_min_cleanable_ratio == 0.25
    assert config.log_cleanup_policy == ("compact", "delete")


def test_the_alerts_are_those_of_deploy_monitoring() -> None:
    """A chart cannot reach outside its folder, so it has a copy."""
    theirs = (ROOT / "deploy" / "monitoring" / "alerts.yml").read_text()
    assert (CHART / "files" / "alerts.yml").read_text() == theirs
    rules = Release(render(CASES["monitoring"])).one("PrometheusRule")
    assert rules["spec"] == yaml.safe_load(theirs)


def test_prometheus_finds_the_nodes_and_has_the_readers_token() -> None:
    """It selects the headless Service, which has every node, and sends a token that reads only."""
    release = Release(render(CASES["monitoring"]))
    monitor = release.one("ServiceMonitor")["spec"]
    selected = [
        name
        for (kind, name), each in release.objects.items()
        if kind == "Service"
        and monitor["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    assert selected == ["raftlog-headless"]
    files = release.files({"certificates": {}})
    credentials = monitor["endpoints"][0]["authorization"]["credentials"]
    token = files[f"/run/raftlog/{credentials['key']}"]
    assert f"reader metrics {token}\n" in files["/run/raftlog/admin.tokens"]
    labels = {each["targetLabel"]: each["replacement"] for each in monitor["endpoints"][0]["relabelings"]}
    assert labels == {"job": "raftlog", "cluster": "logs/raftlog"}  # so that alerts do not mix two releases


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"replicas": 0}, "minimum: got 0, want 1"),
        ({"voters": 2}, "'/voters': value must be one of 1, 3, 5, 7"),
        ({"replicas": 2}, "voters is 3, but there are only 2 replicas"),
        ({"tls": {"enabled": True}}, "'/tls/secretName': minLength"),
        ({"external": {"enabled": True}}, "'/external/host': minLength"),
        ({"sasl": {"mechanisms": ["GSSAPI"]}}, "'/sasl/mechanisms/0': value must be one of"),
        ({"sasl": {"users": {"eve": 'a" user_root="b'}}}, "does not match pattern"),
        ({"config": {"node.id": 7}}, "the chart sets node.id itself"),
        ({"config": {"ssl.keystore.password": "x"}}, "the chart sets ssl.keystore.password itself"),
        ({"config": {"delegation.token.secret.key": "x"}}, "is a secret"),
        ({"config": {"a\nnode.id": "7"}}, "invalid propertyName"),
        ({"terminationGracePeriodSeconds": 10}, "minimum: got 10, want 75"),
    ],
)
def test_wrong_values_are_refused_in_words(values: dict[str, Any], words: str) -> None:
    """By values.schema.json, or by the chart for what a schema cannot say; the message names the value."""
    with pytest.raises(Refused) as refused:
        render(values)
    assert words in str(refused.value)


def test_the_chart_has_the_version_of_raftlog() -> None:
    """A release raises both."""
    from raftlog import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
