"""Fill in the generated parts of docs/ and localstack/: `make docs`.

A part stands between `<!-- include: NAME -->` and `<!-- end -->`. The script replaces it. NAME is

    seglog.format.frame           a module or a package: its docstring, read without importing it
    catalog/schema.proto   a path: the file as it is
    settings:log           the settings of a section, as a table; `settings:file` is the file that `seglog init` writes,
                           `settings:durability` the classes of durability
    checks:stores          what `seglog doctor` tries, as a table
    mistakes:tests         the mistakes of users that tests/promises/mistakes makes, and how each ends
    commands:list          the commands of `seglog`, with their arguments, as a table
    commands:options       the options of each command, as a table
    policies:roles         the actions of each role of a tenant, as a table
    errors:Conflict        the errors of a group, with what happened and what to do, as a table
    schemas:list           the kinds of objects that `--json` prints, as a table
    metrics:list           the metrics of the daemon, as a table; `metrics:alerts` the alerts of docs/deploy/alerts.yaml

It also writes offload/operations/command_list.py: the commands with their help and their parameters, from which the
front door of `seglog` answers without an import of a command. From that list it writes the golden help in tests/golden.
It writes docs/schema: a JSON Schema for each kind of object that `--json` prints. It writes the templates of policies
in localstack/ from the table of roles and actions.

So a format is written down once, at the top of the code that reads and writes it, and a setting where its field is.
`--check` changes nothing and fails when a part is not current.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram, Metric

    from offload.daemon.figures import DirectoryFigures, ReplicaFigures, TopicFigures
    from offload.operations.cursor import CursorListed
    from offload.operations.listed_command import ListedCommand, ListedParameter
    from offload.operations.queue import QueueListed
    from offload.operations.router import RouterListed

__all__ = [
    "alerts",
    "checks",
    "commands",
    "error_rows",
    "errors",
    "filled",
    "golden_help",
    "included",
    "listing",
    "metrics",
    "mistakes",
    "policies",
    "policy_templates",
    "schema_files",
    "schema_list",
    "settings",
    "table",
    "told",
    "write",
]

ROOT = Path(__file__).resolve().parent.parent
LISTING = ROOT / "offload" / "operations" / "command_list.py"
SCHEMAS = ROOT / "docs" / "schema"
POLICIES = ROOT / "localstack"
HELP = {ROOT / "tests" / "golden" / f"help_{columns}.txt": columns for columns in (80, 200)}
HEAD = '''"""The commands of `seglog`, with their help and their parameters. Written by `make docs`."""

from __future__ import annotations

from offload.operations.listed_command import ListedCommand, ListedParameter

'''
PART = re.compile(r"(<!-- include: (?P<name>[\w./:]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def included(name: str) -> str:
    """Return the Markdown for one NAME. Raises `OSError` for a missing file, `ValueError` for a missing docstring."""
    kind, _, section = name.rpartition(":")
    if kind == "checks":
        return checks()
    if kind == "mistakes":
        return mistakes()
    if kind == "commands":
        return commands(section)
    if kind == "policies":
        return policies()
    if kind == "errors":
        return errors(section)
    if kind == "schemas":
        return schema_list()
    if kind == "metrics":
        return alerts() if section == "alerts" else metrics()
    if kind:
        return settings(section)
    if "/" in name:
        path = ROOT / name
        return f"```{path.suffix.lstrip('.')}\n{path.read_text().rstrip()}\n```\n"
    module = ROOT / (name.replace(".", "/") + ".py")
    if not module.exists():
        module = module.with_suffix("") / "__init__.py"
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    if docstring is None:
        raise ValueError(f"{module} has no docstring")
    return f"```text\n{docstring}\n```\n"


def checks() -> str:
    """Return the Markdown for `checks:stores`, from the code of this checkout."""
    sys.path.insert(0, str(ROOT))
    from catalog.objects.conformance import CHECKS

    return table(["check", "what it proves"], [[f"`{check.name}`", check.proves] for check in CHECKS])


def mistakes() -> str:
    """Return the Markdown for `mistakes:tests`: a table for each module, and a row for each test. Import none of them.

    The first paragraph of a test's docstring is the mistake. The paragraph after "Outcome:" says how it ends.
    Raises `ValueError` for a test without them.
    """
    text = ""
    for path in sorted((ROOT / "tests" / "promises" / "mistakes").glob("test_*.py")):
        module = ast.parse(path.read_text())
        tests = [each for each in module.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
        rows = [[str(number), *told(path, test)] for number, test in enumerate(tests, start=1)]
        text += f"\n## {ast.get_docstring(module)}\n{table(['no.', 'mistake', 'outcome'], rows)}"
    return text


def told(path: Path, test: ast.FunctionDef) -> list[str]:
    """Return the mistake and its outcome, each on one line. Raises `ValueError` if the docstring lacks one."""
    paragraphs = [" ".join(each.split()) for each in (ast.get_docstring(test) or "").split("\n\n")]
    outcomes = [each.removeprefix("Outcome: ") for each in paragraphs[1:] if each.startswith("Outcome: ")]
    if not paragraphs[0] or len(outcomes) != 1:
        raise ValueError(f"{path.name}: {test.name} does not say its mistake and its outcome")
    return [paragraphs[0], outcomes[0][:1].upper() + outcomes[0][1:]]


def commands(section: str) -> str:
    """Return the Markdown for `commands:NAME`, from the commands of this checkout."""
    sys.path.insert(0, str(ROOT))
    from offload.cli.commands import listed_commands
    from offload.cli.top import OPTIONS

    listed = list(listed_commands())
    if section == "list":
        return table(["command", "does"], [[f"`{usage(each)}`", cell(each.help)] for each in listed])
    rows = [option_row("seglog", each) for each in OPTIONS]
    rows += [option_row(command.name, each) for command in listed for each in command.options]
    return table(["option", "meaning"], rows)


def errors(group: str) -> str:
    """Return the Markdown for `errors:GROUP`, from the public classes of this checkout."""
    return table(["error", "of", "what happened", "what to do"], error_rows(group))


def made_hint(kind: type[BaseException]) -> str:
    """Return the hint that the `__init__` of a class makes, with `{name}` for what it fills in; "" if it makes none."""
    if "__init__" not in vars(kind):
        return ""
    made = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))
    texts = {
        node.targets[0].id: node.value
        for node in ast.walk(made)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    hints = (
        keyword.value
        for node in ast.walk(made)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "hint"
    )
    return next(filter(None, (_text_of(hint, texts) for hint in hints)), "")


def _text_of(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text_of(part, texts) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in texts:
            return _text_of(texts[name], {})
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BoolOp(values=[*_, last]):
            return _text_of(last, texts)
        case ast.IfExp(body=body, orelse=orelse):
            return "; or: ".join(filter(None, (_text_of(body, texts), _text_of(orelse, texts))))
        case ast.Name(id=name) if name in texts:
            return _text_of(texts[name], {})
    return ""


def error_rows(group: str) -> list[list[str]]:
    """Return name, package, what happened and what to do for each class of a group, by name.

    What happened is the message of the class, else its docstring, else its line in the tree of its module.
    """
    sys.path.insert(0, str(ROOT))
    import catalog.errors
    import offload.errors
    import seglog.errors

    rows: dict[str, list[str]] = {}
    root = getattr(seglog.errors, group)
    for module in (seglog.errors, catalog.errors, offload.errors):
        remarks = dict(re.findall(r"[├└]── (\w+) {2,}(.+?)(?: {2,}.*)?$", module.__doc__ or "", re.MULTILINE))
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, root) and kind is not root:
                what = kind.message or (kind.__doc__ or "").replace("`seglog.errors.", "`") or remarks.get(name, "")
                told = [re.sub(r"(\{\w+)![rs]\}", r"\1}", cell(text)) for text in (what, kind.hint or made_hint(kind))]
                rows.setdefault(name, [f"`{name}`", module.__name__.partition(".")[0], *told])
    return [rows[name] for name in sorted(rows)]


def schema_list() -> str:
    """Return the Markdown for `schemas:list`, from the code of this checkout."""
    rows = []
    for path, text in schema_files().items():
        about = json.loads(text).get("description", "")
        rows.append([f"[`{path.stem}`]({path.name})", cell(about)])
    return table(["kind", "what it is"], sorted(rows))


def metrics() -> str:
    """Return the Markdown for `metrics:list`: a row for each family of a scrape that is ours, by name."""
    sys.path.insert(0, str(ROOT))
    from prometheus_client import Counter, Gauge, Histogram

    from offload.daemon.metrics import Metrics
    from offload.daemon.tenants import Tenants
    from offload.settings import ServeSettings

    made = Metrics()
    for metric in vars(made).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            _give_sample(metric)
    made.watch(cast("DirectoryFigures", _OneTopic()))
    rows = {}
    for family in made.registry.collect():
        rows[family.name] = [family.type, _labels(family), family.documentation]
    for family in Tenants(ROOT, ServeSettings(), {}).registry.collect():
        rows.setdefault(family.name, [family.type, "`tenant`", f"{family.documentation} Of a daemon of tenants alone."])
    suffixes = {"counter": "_total", "info": "_info"}
    ours = [[f"`{name}{suffixes.get(row[0], '')}`", *row] for name, row in rows.items() if name.startswith("seglog_")]
    return table(["metric", "type", "labels", "what it is"], sorted(ours))


def _give_sample(metric: Counter | Gauge | Histogram) -> None:
    """Make a sample of a metric that has labels. Without one, a scrape does not show which labels it has."""
    for count in (1, 2, 3):
        with suppress(ValueError):  # it has none, or another number of them
            metric.labels(*["x"] * count)


def _labels(family: Metric) -> str:
    names = {name: None for sample in family.samples for name in sample.labels if name != "le"}
    return ", ".join(f"`{name}`" for name in names)


class _OneTopic:
    """The source of the figures that a scrape asks for, of a directory with one topic that it follows."""

    def wal_bytes(self) -> int:
        return 0

    def topics(self) -> list[TopicFigures]:
        from offload.daemon.figures import TopicFigures

        return [
            TopicFigures(
                "t", 1, 1, 0, 0, 0, 0, 0, is_paused=False, is_diverged=False, offloaded_at_ms=0, kept_from_ms=0
            )
        ]

    def replicas(self) -> list[ReplicaFigures]:
        from offload.daemon.figures import ReplicaFigures

        return [ReplicaFigures("t", 0)]

    def cursors(self) -> list[CursorListed]:
        from offload.operations.cursor import CursorListed

        return [CursorListed("t", "c", 1, 0, 0, 0, 0, 0)]

    def queues(self) -> list[QueueListed]:
        from offload.operations.queue import QueueListed

        return [QueueListed("t", "q", 0, 0, 0, 0, 0, None)]

    def routers(self) -> list[RouterListed]:
        from offload.operations.router import RouterListed

        return [RouterListed("r", "a", "b", None, None, False, False, "copying", None, 0, 0, 0)]

    def live_workers(self) -> int:
        return 0

    def cache_counts(self) -> list[tuple[str, int, int]]:
        return [("index", 0, 0)]


def alerts() -> str:
    """Return the Markdown for `metrics:alerts`, from the rules of Prometheus."""
    import yaml

    [group] = yaml.safe_load((ROOT / "docs" / "deploy" / "alerts.yaml").read_text())["groups"]
    rows = [
        [
            f"`{rule['alert']}`",
            rule["labels"]["severity"],
            f"`{rule['expr']}`",
            rule.get("for", ""),
            re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", rule["annotations"]["summary"]),
        ]
        for rule in group["rules"]
    ]
    return table(["alert", "severity", "fires if", "for", "what it says"], rows)


def policies() -> str:
    """Return the Markdown for `policies:roles`, from the table of this checkout."""
    sys.path.insert(0, str(ROOT))
    from catalog.tenants.policies import RIGHTS, TenantRole

    rows = [
        [
            f"`{each.action}`",
            each.target.value,
            *("yes" if role.includes(each.least) else "no" for role in TenantRole),
            each.use,
        ]
        for each in RIGHTS
    ]
    return table(["action", "on", *TenantRole, "for"], rows)


def policy_templates() -> dict[Path, str]:
    """Return the text of each template in localstack/. `@TENANT@` and `@BUCKET@` stand for the names."""
    sys.path.insert(0, str(ROOT))
    from catalog.tenants.policies import TenantRole, bucket_policy, tenant_policy

    made = {
        POLICIES / "policies" / f"{role}.json": tenant_policy("the-tenant", role, "the-bucket") for role in TenantRole
    }
    made[POLICIES / "bucket-policy.json"] = bucket_policy("the-bucket", is_tls_only=False)  # the stand-ins have no TLS
    return {
        path: json.dumps(policy, indent=2).replace("the-tenant", "@TENANT@").replace("the-bucket", "@BUCKET@") + "\n"
        for path, policy in made.items()
    }


def usage(command: ListedCommand) -> str:
    """Return a command's name and its arguments. An optional argument is in brackets."""
    return " ".join([command.name, *(one.word if one.is_required else f"[{one.word}]" for one in command.arguments)])


def option_row(name: str, option: ListedParameter) -> list[str]:
    return [f"`{name} {', '.join(option.options)}`", cell(option.help)]


def cell(text: str | None) -> str:
    """Return the first paragraph of a text, on one line, as a table takes it."""
    return " ".join((text or "").split("\n\n")[0].split()).replace("|", "\\|")


def settings(section: str) -> str:
    """Return the Markdown for `settings:NAME`, from the code of this checkout and not of an installed package."""
    sys.path.insert(0, str(ROOT))
    from offload.settings import SETTINGS, default_file
    from seglog import DURABILITIES

    if section == "file":
        return f"```toml\n{default_file()}```\n"
    if section == "durability":
        return table(["durability", "meaning"], [[f"`{name}`", meaning] for name, meaning in DURABILITIES.items()])
    rows = [
        [f"`{one.key}`", f"`{one.default_text}`", one.unit, one.allowed, one.meaning, f"`{one.variable}`"]
        for one in SETTINGS
        if one.section == section
    ]
    if not rows:
        raise ValueError(f"there are no settings of a section {section}")
    return table(["key", "default", "unit", "range", "meaning", "environment"], rows)


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines) + "\n"


def filled(text: str) -> str:
    return PART.sub(lambda part: f"{part[1]}{included(part['name'])}{part[3]}", text)


def listing() -> str:
    """Return the source of offload/operations/command_list.py, from the code of this checkout."""
    sys.path.insert(0, str(ROOT))
    from offload.cli.commands import listed_commands

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    commands = "".join(f"    {each.path!r}: {listed_command(each)},\n" for each in listed_commands())
    return f"{HEAD}VERSION = {version!r}\n\nCOMMANDS = {{\n{commands}}}\n"


def listed_command(command: ListedCommand) -> str:
    parameters = "".join(f"            {listed_parameter(each)},\n" for each in command.parameters)
    lines = "".join(f"        {line!r}\n" for line in command.help.splitlines(keepends=True))
    inner = f"(\n{parameters}        )" if parameters else "()"
    parts = [f"        {command.path!r}", lines.rstrip(), f"        {inner}", f"        {command.home!r}"]
    parts += [f"        {command.section!r}", f"        {command.aliases!r}"]
    return "ListedCommand(\n" + "".join(f"{each},\n" for each in parts) + "    )"


def listed_parameter(parameter: ListedParameter) -> str:
    """Return the call that makes a parameter, without the arguments that have their defaults."""
    plain = type(parameter)("", "", "")
    first = [repr(getattr(parameter, name)) for name in ("name", "kind", "help", "options")]
    others = ("default", "is_required", "is_topic", "metavar", "shown_default", "least", "choices", "names")
    given = [(name, getattr(parameter, name)) for name in others]
    named = [f"{name}={literal(value)}" for name, value in given if value != getattr(plain, name)]
    return f"ListedParameter({', '.join([*first, *named])})"


def golden_help(columns: int) -> str:
    """Return the help of all commands, from the list that `listing` gives."""
    sys.path.insert(0, str(ROOT))
    from tests.golden.make_help import make

    return make(columns)


def literal(value: object) -> str:
    return repr(str(value)) if isinstance(value, str) else repr(value)


def schema_files() -> dict[Path, str]:
    """Return the text of each file in docs/schema, from the code of this checkout."""
    sys.path.insert(0, str(ROOT))
    from offload.operations.command import schemas

    return {SCHEMAS / f"{kind}.json": json.dumps(schema, indent=2) + "\n" for kind, schema in schemas().items()}


def write(page: Path, text: str) -> None:
    """Write a page. A schema whose kind is gone has no text, and goes."""
    if text:
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)
    else:
        page.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a part is not current")
    check = parser.parse_args().check
    stale = 0
    if not check and (found := listing()) != LISTING.read_text():
        LISTING.write_text(found)
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - the other parts come from the list
    made = {**schema_files(), **policy_templates()}
    pages = [*sorted((ROOT / "docs").rglob("*.md")), POLICIES / "README.md"]
    for page in (LISTING, *HELP, *pages, *sorted({*made, *SCHEMAS.glob("*.json")})):
        before = page.read_text() if page.exists() else ""
        after = listing() if page == LISTING else golden_help(HELP[page]) if page in HELP else None
        after = made.get(page, "" if page.suffix == ".json" else filled(before)) if after is None else after
        if after == before:
            continue
        if check:
            print(f"{page.relative_to(ROOT)} is not current: run `make docs`", file=sys.stderr)
            stale += 1
        else:
            write(page, after)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
