"""Test the files of docs/deploy: they parse, and name only what exists."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml

import seglog
from offload.cli.parser import request_of
from offload.settings import SETTINGS, read_settings
from scripts.part_of_lock import part_of, runtime_names
from tests.daemons import ServedDirectory, served, served_tenants

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "docs" / "deploy"
YAMLS = sorted(DEPLOY.rglob("*.yaml"))
NOT_SETTINGS = {"SEGLOG_DIR", "SEGLOG_REMOTE"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    directory = tmp_path_factory.mktemp("deploy") / "data"
    seglog.open(directory).close()
    with served(directory, "", SERVE_PROBE_PORT="0", SERVE_PROBE_METRICS="true") as started:
        yield started


class Images:
    """The images below a directory, with buildah: it needs no daemon, and in a chroot no right to make a namespace."""

    def __init__(self, directory: Path) -> None:
        self._own = [
            "buildah",
            "--storage-driver",
            "vfs",
            "--root",
            f"{directory}/root",
            "--runroot",
            f"{directory}/run",
        ]

    def command(self, *words: str) -> list[str]:
        return [*self._own, *words]

    def do(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"buildah {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def in_container(self, container: str, *words: str, **variables: str) -> list[str]:
        given = [f"--env={name}={text}" for name, text in variables.items()]
        return self.command("run", "--isolation=chroot", *given, container, "--", *words)


class ServedContainer(ServedDirectory):
    """The daemon of an image in a container, as the image itself starts it."""

    def __init__(self, images: Images, container: str, words: Sequence[str]) -> None:
        self._images, self._container, self._words = images, container, words
        super().__init__(Path("unused"), {"SEGLOG_SERVE_PROBE_PORT": "0"})

    def start(self, _: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:  # type: ignore[override]
        ports = {name: text for name, text in variables.items() if name.endswith("_PORT")}
        command = self._images.in_container(self._container, *self._words, **ports)
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def last_child(pid: int) -> int:
    """Return the process below all others: the runtime, a process of many threads, stands above the container's."""
    children = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return last_child(int(children[0])) if children else pid


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def metric_names(daemon: ServedDirectory) -> set[str]:
    """Return the name of each sample that the daemon can show."""
    names = set()
    text = daemon.ask("GET", "/metrics")[1].decode()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {f"{name}{end}" for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


def test_every_yaml_file_parses_and_has_content() -> None:
    assert {path.name for path in YAMLS} >= {"compose.yaml", "alerts.yaml", "alerts.test.yaml", "seglog.yaml"}
    for path in YAMLS:
        assert all(documents(path)), path


def test_alerts_and_dashboard_name_metrics_of_the_daemon(daemon: ServedDirectory) -> None:
    alerts = [rule["expr"] for group in documents(DEPLOY / "alerts.yaml")[0]["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    known = metric_names(daemon)
    assert {"seglog_disk_state", "seglog_wal_sync_seconds_bucket", "seglog_offload_runs_total"} <= known
    for expression in alerts + panels:
        named = set(re.findall(r"\bseglog_\w+", expression))
        assert named <= known, expression
        assert named or "up{" in expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) >= 10


def test_every_test_of_an_alert_names_a_rule() -> None:
    rules = {rule["alert"] for group in documents(DEPLOY / "alerts.yaml")[0]["groups"] for rule in group["rules"]}
    [tests] = documents(DEPLOY / "alerts.test.yaml")
    assert {each["alertname"] for test in tests["tests"] for each in test["alert_rule_test"]} <= rules


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed, and judges the rules")
def test_promtool_agrees() -> None:
    for words in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run(["promtool", *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_exists_and_takes_its_value() -> None:
    known = {setting.variable: setting for setting in SETTINGS}
    given: dict[str, str] = {}
    for path in (DEPLOY / "compose.yaml", DEPLOY / "kubernetes" / "seglog.yaml"):
        given |= dict(re.findall(r"^ +(SEGLOG_\w+): (.+)$", path.read_text(), re.MULTILINE))
    given |= dict(re.findall(r"(SEGLOG_\w+)=(\S+)", (DEPLOY / "Containerfile").read_text()))
    assert len(given) > 8
    for name, value in given.items():
        if name not in NOT_SETTINGS:
            known[name].parse(str(yaml.safe_load(value)).lower() if value.startswith('"') else value.strip(",."))


def test_every_image_has_a_version() -> None:
    text = "\n".join(path.read_text() for path in (*YAMLS, DEPLOY / "Containerfile"))
    images = re.findall(r"^ *(?:- )?image: (\S+)$|^FROM (\S+)", text, re.MULTILINE)
    names = [first or second for first, second in images]
    assert len(names) >= 8
    for name in names:
        assert re.fullmatch(r"[\w./-]+:(v?\d+\.\d+\.\d+[\w.-]*|RELEASE\.[\dTZ-]+)", name), name


def test_kubernetes_probes_use_the_probe_port_and_the_grace_covers_the_stop() -> None:
    found = {each["kind"]: each for each in documents(DEPLOY / "kubernetes" / "seglog.yaml")}
    assert set(found) == {"StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget", "ServiceMonitor"}
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "probes"}
    assert found["StatefulSet"]["spec"]["replicas"] == 1
    delay_s = int(found["ConfigMap"]["data"]["SEGLOG_SERVE_STOP_DELAY_S"])
    [timeout_s] = [setting.default for setting in SETTINGS if setting.name == "serve.stop_timeout_s"]
    assert pod["terminationGracePeriodSeconds"] > delay_s + int(timeout_s)
    [port] = [each["containerPort"] for each in container["ports"] if each["name"] == "probes"]
    assert f"SEGLOG_SERVE_PROBE_PORT={port}\n" in (DEPLOY / "Containerfile").read_text()


def test_the_unit_waits_for_ready_and_has_a_watchdog() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "seglog.service")
    service = unit["Service"]
    assert (service["Type"], service["NotifyAccess"], service["WatchdogSec"]) == ("notify", "main", "30")
    assert service["LimitCORE"] == "0", "a core file would hold credentials"


def test_the_tenants_of_one_daemon_share_nothing_and_their_settings_are_valid() -> None:
    folders = sorted(path.parent for path in (DEPLOY / "tenants").glob("*/seglog.toml"))
    found = {folder.name: read_settings(folder / "seglog.toml") for folder in folders}
    assert list(found) == ["acme", "globex"]
    for name, settings in found.items():
        assert (settings.tenant.name, settings.url) == (name, f"s3://archive/{name}")
        assert settings.tenant.role_arn.endswith(f"/seglog-{name}")
        assert settings.offload.sse == "aws:kms"
    assert len({settings.offload.sse_kms_key_id for settings in found.values()}) == len(found)
    assert read_settings(DEPLOY / "tenants" / "seglog.toml").serve.token_file == "/etc/seglog/tokens"


def test_the_drop_in_of_the_tenants_starts_a_command_that_there_is() -> None:
    text = (DEPLOY / "tenants" / "override.conf").read_text()
    [command] = re.findall(r"^ExecStart=(\S.*)$", text, re.MULTILINE)
    program, *words = command.split()
    assert program in (DEPLOY / "seglog.service").read_text()
    request = request_of(words, {})
    assert (request.path, request.values["tenants"]) == ("serve", True)
    for given in re.findall(r"seglog (token .*?) >>", text):
        assert request_of(given.split(), {}).path == "token/new"


def test_one_daemon_starts_with_the_directories_of_the_tenants(tmp_path: Path) -> None:
    """The roles and the certificate are not there, so the test leaves them out."""
    for name in ("acme", "globex"):
        seglog.open(tmp_path / name).close()
        text = (DEPLOY / "tenants" / name / "seglog.toml").read_text()
        text = re.sub(r"^role_arn.*$", "", text, flags=re.MULTILINE).replace(
            "s3://archive", tmp_path.as_uri() + "/archive"
        )
        (tmp_path / name / "seglog.toml").write_text(text)
    (tmp_path / "archive").mkdir()
    with served_tenants(tmp_path) as daemon:
        for name in ("acme", "globex"):
            path, headers = f"/tenants/{name}/topics/logins/records", {"Content-Type": "application/octet-stream"}
            assert daemon.ask("POST", path, b"of " + name.encode(), headers)[0] == 201
            assert b"of " + name.encode() in daemon.ask("GET", path)[1]


def test_the_health_check_of_the_image_asks_a_real_daemon(daemon: ServedDirectory) -> None:
    [check] = re.findall(r'CMD \["/opt/seglog/bin/python", "-c", "(.*)"\]', (DEPLOY / "Containerfile").read_text())
    here = check.replace("7374", str(daemon.port_of("probes")))
    assert here != check
    assert subprocess.run([sys.executable, "-c", here], check=False).returncode == 0
    wrong = here.replace("/healthz", "/nothing")
    assert subprocess.run([sys.executable, "-c", wrong], capture_output=True, check=False).returncode != 0


@pytest.mark.soak(part=9)
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("buildah") is None or shutil.which("debootstrap") is None,
    reason="an image is built by root, with buildah and debootstrap",
)
def test_the_image_is_built_and_serves_records_until_sigterm(disk_path: Path) -> None:
    """No registry of images is asked: the base is a Debian of debootstrap, under the name that the Containerfile has.

    The build installs from the machine's registry of packages, with its configuration of pip and its certificates.
    """
    text = (DEPLOY / "Containerfile").read_text()
    [name] = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    debian, context, images = disk_path / "debian", disk_path / "checkout", Images(disk_path)
    packages = "--include=python3-venv,python-is-python3,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, "bookworm", debian], stdout=subprocess.DEVNULL, check=True
    )
    base = images.do("from", "scratch")
    images.do("copy", base, str(debian), "/")
    images.do("commit", "--rm", base, name)
    for file in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split():
        (context / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, context / file)
    of_machine = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
    shared = [f"--volume={path}:{path}:ro" for path in of_machine]
    options = ["--isolation=chroot", "--pull-never", *shared, f"--file={context}/docs/deploy/Containerfile"]
    images.do("build", *options, "--tag=seglog", str(context))
    container = images.do("from", "--pull-never", "seglog")
    config = json.loads(images.do("inspect", "--type=image", "seglog"))["OCIv1"]["config"]
    assert config["User"] == "7373"
    seglog_words = config["Entrypoint"]
    subprocess.run(images.in_container(container, *seglog_words, "init"), check=True)
    daemon = ServedContainer(images, container, [*seglog_words, *config["Cmd"]])
    try:
        assert daemon.append("t", b"of the image") == 1
        assert daemon.values("t") == ["of the image"]
        os.kill(last_child(daemon.process.pid), signal.SIGTERM)
        assert daemon.process.wait(60) == 0, "".join(daemon.lines)
    finally:
        daemon.kill()
    words = images.in_container(container, *seglog_words, "read", "t")
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "of the image\n"


def test_the_part_of_the_lock_is_all_that_the_daemon_needs_and_no_tool_of_ours() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    part = part_of(lock, runtime_names())
    names = set(re.findall(r"^([\w.-]+)==", part, re.MULTILINE))
    assert {"starlette", "anyio", "botocore", "uvloop"} <= names
    assert names.isdisjoint({"pytest", "pyspark", "moto", "mypy"})
    assert part.count("--hash=sha256:") > 2 * len(names)
    for name in names:
        for needed in requires(name) or ():
            if "extra" not in needed and "sys_platform" not in needed and "python_" not in needed:
                plain = re.match(r"[\w.-]+", needed)
                assert plain is not None
                assert re.sub(r"[-_.]+", "-", plain[0]).lower() in names, f"{name} needs {needed}"
    with pytest.raises(ValueError, match=r"requirements\.lock has no nonsense"):
        part_of(lock, ["nonsense"])
