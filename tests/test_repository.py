"""Test the repository as a whole: the lock file, generated files, names, documents, set-up, policies."""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import InvalidName
from catalog.tenants.names import RESERVED, check_tenant
from catalog.tenants.policies import TenantRole, bucket_policy, tenant_policy
from offload.settings import SETTINGS, read_settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmarks", "catalog", "offload", "seglog")
RESULTS = ROOT / "benchmarks" / "results"


def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def modules() -> list[str]:
    """Return every module of the project that a test may import.

    A `__main__` acts on import, and generated code does not follow the rules for names, so both are left out.
    """
    files = [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    return [name for name in names if not name.endswith(("__main__", "_pb2"))]


# ---------------------------------------------------------------- the lock file


def locked() -> dict[str, list[str]]:
    """Map each requirement line to the lines after it, up to the next requirement."""
    entries: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            entries[line] = following = []
        elif entries:
            following.append(line.strip())
    return entries


def test_every_locked_requirement_is_one_version_with_hashes() -> None:
    entries = locked()
    assert entries
    for requirement, following in entries.items():
        assert re.match(r"[a-z0-9.\-]+(\[[a-z0-9,\-]+\])?==[^ ]+( ; .+)? \\$", requirement), requirement
        assert any(re.match(r"--hash=sha256:[0-9a-f]{64}", line) for line in following), requirement


def test_the_lock_file_names_no_place_to_install_from() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert not re.search(
        r"^\s*(-i|-f|-e|--index-url|--extra-index-url|--find-links|--trusted-host)\b", text, re.MULTILINE
    )
    assert " @ " not in text


def test_every_dependency_of_the_project_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(each for extra in project["project"]["optional-dependencies"].values() for each in extra),
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    names = {re.split(r"[=\[ ]", requirement)[0] for requirement in locked()}
    assert {re.split(r"[^A-Za-z0-9\-]", one)[0].lower() for one in wanted} <= names


# ---------------------------------------------------------------- generated files


@pytest.mark.long
@pytest.mark.parametrize("script", ["proto", "docs"])
def test_generated_files_are_current(script: str) -> None:
    done = run(sys.executable, f"scripts/{script}.py", "--check")
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- names


def test_all_is_sorted_and_every_name_in_it_exists() -> None:
    for name in modules():
        exported = _exported(name)
        module = importlib.import_module(name)
        assert exported == sorted(set(exported), key=_sort_key), name
        assert [one for one in exported if not hasattr(module, one)] == [], name


def _exported(name: str) -> list[str]:
    path = ROOT / name.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            if isinstance(node.value, ast.List):
                return list(ast.literal_eval(node.value))
            return sorted(importlib.import_module(name).__all__, key=_sort_key)  # it is made of another list
    return []


def _sort_key(name: str) -> tuple[int, str]:
    """Sort constants, then classes, then the rest, which is the order that ruff keeps."""
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name


_A_MODULE = re.compile(r"(?<![\w./\"@-])(?:seglog|catalog|offload)(?:\.[a-z_][a-z_0-9]*)+")
_SETTINGS = {f"{each.section}.{each.key}" for each in SETTINGS}
_NO_MODULES = ("seglog.toml", "seglog.sock", "seglog.service", "seglog.v1", "catalog.db", "catalog.md", "offload.md")


def remarks(name: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of the docstrings of modules, classes and functions, and of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield name, token.string


def _exists(name: str) -> bool:
    """Return True if a module, or an attribute of a module, has that name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_every_module_that_a_docstring_comment_or_page_names_exists() -> None:
    """A source file is taken apart only if its text, with its code, names a module that does not exist."""
    files = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *RESULTS.glob("*.md"))
    pages = [(page.name, page.read_text()) for page in files]
    sources = []
    for name in modules():
        path = ROOT / name.replace(".", "/")
        sources.append((name, (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()))
    named = {found for _, text in pages + sources for found in _A_MODULE.findall(text)}
    known = {each for each in named if each in _SETTINGS or each.startswith(_NO_MODULES) or _exists(each)}
    assert len(known) > 100
    suspect = [(name, text) for name, text in sources if {*_A_MODULE.findall(text)} - known]
    told = [*pages, *(remark for each in suspect for remark in remarks(*each))]
    assert {(place, each) for place, text in told for each in _A_MODULE.findall(text) if each not in known} == set()


# ---------------------------------------------------------------- tests

#: Also one in the program of a child, which is a text.
_AN_IMPORT = re.compile(r"^ *(?:from|import) +(tests[\w.]*)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE)


def imported_tests(source: str) -> set[str]:
    """Return the modules with tests, and the conftest modules, that a source imports."""
    found = set()
    for module, names in _AN_IMPORT.findall(source):
        for name in (module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))):
            is_for_pytest = name.rpartition(".")[2].startswith(("test_", "conftest"))
            if is_for_pytest and (ROOT / name.replace(".", "/")).with_suffix(".py").exists():
                found.add(name)
    return found


def test_nothing_imports_a_module_that_pytest_runs() -> None:
    """What two tests share lies in `tests/worlds`, `tests/faults` or `tests/seams`, where each name says what it is."""
    assert imported_tests("from tests import (\n    work,\n    test_seams,\n)\nimport tests.conftest as fixtures") == {
        "tests.test_seams",
        "tests.conftest",
    }
    suite = "from tests.worlds.segment_store_suite import test_a_large_segment_is_whole"
    assert imported_tests(f"{suite}\nCHILD = 'from tests.test_seams import sources'") == set()
    assert imported_tests('CHILD = """\nfrom tests.cli.test_help import ROOT\n"""') == {"tests.cli.test_help"}
    paths = [path for folder in ("benchmarks", "scripts", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 500
    this = Path(__file__)
    found = {path.relative_to(ROOT): imported_tests(path.read_text()) for path in paths if path != this}
    assert {path: names for path, names in found.items() if names} == {}


# ---------------------------------------------------------------- documents


def test_every_command_and_option_is_documented() -> None:
    from offload.cli.commands import listed_commands

    documented = (ROOT / "docs" / "cli.md").read_text()
    found = list(listed_commands())
    assert "topic create" in [command.name for command in found]
    for command in found:
        assert re.search(rf"^\| `{command.name}[ `][^|]*\| [A-Z]", documented, re.MULTILINE), command.name
        for option in [one for each in command.options for one in each.options if one.startswith("--")]:
            row = rf"^\| `{command.name} [^`]*{option}` \| \w"
            assert re.search(row, documented, re.MULTILINE), f"{command.name} {option}"


def test_every_setting_is_documented_with_its_default_range_and_variable() -> None:
    from offload.settings import SETTINGS, default_file

    page = (ROOT / "docs" / "configuration.md").read_text()
    assert {setting.section for setting in SETTINGS} == {
        "log", "offload", "cold", "catalog", "serve", "tenant", "cli",
    }  # fmt: skip
    for setting in SETTINGS:
        assert setting.meaning, setting.name
        row = f"| `{setting.key}` | `{setting.default_text}` |"
        assert row in page, f"{setting.name} is not documented: run `make docs`"
        assert f"| {setting.allowed} | {setting.meaning} | `{setting.variable}` |" in page
        assert f"# {setting.key} = " in default_file()
    names = {setting.key for setting in SETTINGS} | {"url"}
    assert set(re.findall(r"^\| `(\w+)` \| `", page, re.MULTILINE)) <= names


def test_the_first_example_of_the_settings_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    (tmp_path / "seglog.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    settings = read_settings(tmp_path / "seglog.toml")
    assert (settings.log.segment_max_events, settings.serve.port) == (5000, 7400)
    assert settings.catalog.pitr_window_s == 30 * 86_400


_DECISIONS = ROOT / "docs" / "decisions"
_A_DECISION = re.compile(
    r"# (?P<number>\d{4})\. (?P<title>[^\n]+[^\n.])\n\n"
    r"- Status: (?P<status>accepted|superseded by \[\d{4}\]\([^)]+\))\n- Date: (?P<date>\d{4}-\d{2}-\d{2})\n\n"
)
_A_CITATION = re.compile(r"\bdecisions?/(\d{4})-|\bdecisions? \[?(\d{4})\b|\[(\d{4})\]\(")


def decisions() -> list[Path]:
    return sorted(_DECISIONS.glob("[0-9]*.md"))


def test_each_decision_has_a_title_a_status_a_date_and_its_row_in_the_index() -> None:
    rows = []
    for path in decisions():
        text = path.read_text()
        found = _A_DECISION.match(text)
        assert found is not None, path.name
        assert found["number"] == path.name[:4]
        date.fromisoformat(found["date"])
        assert all(part in text for part in ("**Context.**", "**Decision.**", "**Rejected.**")), path.name
        rows.append(f"| [{path.name[:4]}]({path.name}) | {found['title']} | {found['status']} | {found['date']} |")
    index = (_DECISIONS / "README.md").read_text()
    assert re.findall(r"^\| \[\d{4}\].*$", index, re.MULTILINE) == rows
    assert len({path.name[:4] for path in decisions()}) == len(rows) > 30


def test_each_decision_that_a_file_cites_exists() -> None:
    numbers = {path.name[:4] for path in decisions()}
    cited = set()
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *RESULTS.glob("*.md")]
    for folder in (*PACKAGES, "scripts", "tests"):
        files += [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.toml")]
    for file in files:
        for found in _A_CITATION.findall(file.read_text()):
            cited.add("".join(found))
            assert "".join(found) in numbers, f"{file.relative_to(ROOT)} cites decision {''.join(found)}"
    assert len(cited) > 30


def test_every_benchmark_is_documented() -> None:
    from benchmarks.__main__ import NAMES

    pages = {path.stem: path.read_text() for path in RESULTS.glob("*.md") if path.stem != "README"}
    assert pages.keys() == {*NAMES}
    assert [name for name, page in pages.items() if not page.startswith(f"# {name}\n")] == []
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \| \w", (RESULTS / "README.md").read_text(), re.MULTILINE)
    assert listed == [*NAMES]


def documents() -> list[Path]:
    folders = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *RESULTS.glob("*.md"))
    return [*folders, ROOT / "localstack" / "README.md"]


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in documents():
        for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
            if "NNNN" not in target:
                place = page.parent / target if target else page
                assert place.exists(), f"{page.relative_to(ROOT)} points to {target}"
                assert not heading or heading in headings(place), f"{page.relative_to(ROOT)} points to #{heading}"


_A_PATH = re.compile(r"`((?:seglog|catalog|offload|tests|docs|scripts|benchmarks|localstack)/[\w./*-]*)`")


def test_every_path_that_a_page_names_exists() -> None:
    named = {(page.name, path) for page in documents() for path in _A_PATH.findall(page.read_text())}
    assert len(named) > 50
    assert [(page, path) for page, path in sorted(named) if not list(ROOT.glob(path))] == []


def test_architecture_names_every_room() -> None:
    packages = ("catalog", "offload", "seglog")
    text = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = re.findall(r"^  ([\w/ ]+?)(?:  .*)?$", text[: text.index("- **Archive.**")], re.MULTILINE)
    names = {name.rstrip("/") for line in drawn for name in line.split()}
    rooms = {path.parent.name for package in packages for path in (ROOT / package).glob("*/__init__.py")}
    assert sorted(rooms - names) == []
    known = {path.stem for package in packages for path in (ROOT / package).glob("*")}
    assert sorted(names - known) == []


def headings(page: Path) -> set[str]:
    """Return the names that links use for the headings of a page: lower case, without punctuation, with hyphens."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


def test_no_file_names_the_host_of_a_package_registry() -> None:
    # The names are in pieces, so that this file passes its own test.
    hosts = ["pypi." + "org", "python" + "hosted.org", "npmjs." + "org", "proxy.golang." + "org", "crates." + "io"]
    hosts += ["maven." + "org", "maven.apache." + "org", "debian." + "org", "deb." + "debian"]
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            text = path.read_bytes().decode(errors="replace")
            assert [host for host in hosts if host in text] == [], name


# ---------------------------------------------------------------- make and set-up


def test_make_alone_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert phony is not None
    listed = [line.split()[0] for line in run("make").stdout.splitlines()]
    assert listed == phony[1].split()


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """Return a PATH with the tools that set-up needs, except Python and Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("awk", "cat", "cksum", "dirname", "head", "mkdir", "rm", "sed", "sh"):
        for place in ("/usr/bin", "/bin"):
            if (Path(place) / tool).exists():
                (folder / tool).symlink_to(Path(place) / tool)
                break
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout with the files that set-up reads before it begins."""
    place = tmp_path / "checkout"
    (place / "scripts").mkdir(parents=True)
    for name in ("scripts/setup.sh", "requirements.lock", "pyproject.toml"):
        (place / name).write_bytes((ROOT / name).read_bytes())
    return place


def pretend(folder: Path, tool: str, script: str) -> None:
    path = folder / tool
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def set_up(checkout: Path, path: Path, **env: str) -> list[str]:
    done = run("/bin/sh", str(checkout / "scripts" / "setup.sh"), env={"PATH": str(path), **env})
    assert done.returncode == 1
    assert not (checkout / ".venv").exists()
    return done.stderr.splitlines()


def test_a_machine_without_python_and_java_gets_a_line_for_each(checkout: Path, bare_path: Path) -> None:
    python, java = set_up(checkout, bare_path)
    assert python.startswith("setup: Python 3.11 or newer is needed; found: none. Install")
    assert java.startswith("setup: Java 17 or newer is needed by Spark; found: no working Java (java on PATH). Install")


def test_an_old_python_and_an_old_java_are_named_with_their_versions(checkout: Path, bare_path: Path) -> None:
    pretend(bare_path, "python3", "echo 3.9.18")
    pretend(bare_path, "java", "echo 'openjdk version \"1.8.0_412\"' >&2")
    python, java = set_up(checkout, bare_path)
    assert "found: python3 is 3.9.18." in python
    assert "found: java on PATH is 8." in java


def test_a_python_or_java_that_was_asked_for_is_not_replaced_by_another(checkout: Path, bare_path: Path) -> None:
    pretend(bare_path, "python3", "echo 3.13.1")
    pretend(bare_path, "java", "echo 'openjdk version \"21.0.1\"' >&2")
    python, java = set_up(checkout, bare_path, PYTHON="/nowhere/python3", JAVA_HOME="/nowhere/jdk")
    assert "found: PYTHON=/nowhere/python3 does not run." in python
    assert "found: no working Java (JAVA_HOME=/nowhere/jdk)." in java


def test_a_set_up_that_somebody_else_is_at_is_left_alone(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".setup-begun").write_text(f"{os.getpid()}\n")
    done = run("/bin/sh", str(checkout / "scripts" / "setup.sh"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"setup: process {os.getpid()} is setting up .venv just now")


def test_nothing_of_the_users_environment_reaches_tests_and_demo() -> None:
    leaks = {
        "AWS_PROFILE": "mine",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "PYSPARK_DRIVER_PYTHON": "ipython",
        "PYTEST_ADDOPTS": "-x",
        "PYTHONPATH": "/nowhere",
        "SEGLOG_DIR": "/nowhere",
        "SPARK_HOME": "/nowhere",
    }
    kept = {"HOME": "/some where", "PATH": os.environ["PATH"]}
    seen = dict(
        line.split("=", 1) for line in run("scripts/isolated.sh", "env", env={**leaks, **kept}).stdout.splitlines()
    )
    assert set(seen) & set(leaks) == set()
    assert seen["HOME"] == "/some where"
    assert seen["PATH"] == f"{ROOT}/.venv/bin:{kept['PATH']}"
    assert seen["PYSPARK_PYTHON"] == f"{ROOT}/.venv/bin/python"


# ---------------------------------------------------------------- policies


@pytest.mark.parametrize("role", TenantRole)
def test_the_policies_of_the_stand_ins_are_those_of_the_command(role: str) -> None:
    done = run("localstack/policy.sh", role, "acme", "archive")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == tenant_policy("acme", TenantRole(role), "archive")


def test_so_is_the_policy_of_their_bucket() -> None:
    done = run("localstack/policy.sh", "bucket", "archive")
    assert json.loads(done.stdout) == bucket_policy("archive", is_tls_only=False)


NO_NAMES = ["Acme", "a/b", "acme\n", "acme\nx", "-acme", "*", "", "ä", "a" * 64, "@BUCKET@", "_sys", *sorted(RESERVED)]


@pytest.mark.parametrize("tenant", NO_NAMES)
def test_a_policy_is_refused_for_what_is_no_tenants_name(tenant: str) -> None:
    done = run("localstack/policy.sh", "reader", tenant, "archive")
    assert (done.returncode, done.stdout) == (2, "")
    with pytest.raises(InvalidName):
        check_tenant(tenant)
