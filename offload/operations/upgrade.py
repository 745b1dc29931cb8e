"""The form of this directory and of its volumes: `seglog upgrade` (docs/operate/upgrades.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from offload.operations.command import Command, Directory, DryRun, Yes, dry
from offload.operations.printing import Output, check_meant
from seglog.base import forms
from seglog.base.dataclasses import dataclass

_FIRST = (
    "seglog: first give this version to all that read: replicas, Spark jobs, other programs. Then to the writers, and "
    "upgrade there. Older versions cannot read the newer form, and a form does not go back"
)


@dataclass(frozen=True, slots=True)
class VolumeUpgraded:
    """The form of the volume of a topic or branch, before and after. With --dry-run, `to` is what it would be.

    `lsn` is the commit that raised it. It is None without one. If `to` is `form`, another directory writes the volume.
    """

    topic: str
    form: int
    to: int
    lsn: int | None


@dataclass(frozen=True, slots=True)
class DirectoryUpgraded:
    """The same of the data directory, whose manifest has the form."""

    path: str
    form: int
    to: int


def upgrade(
    directory: Directory, dry_run: DryRun = False, yes: Yes = False
) -> Iterator[VolumeUpgraded | DirectoryUpgraded]:
    """Give this directory and its volumes the newest form.

    What an older version of seglog made keeps its form, so that older versions beside this one go on. The newest form
    has deletes of ranges (`delete --from`, `--grep`) and undo. First give this version to all that read the remote, to
    its writers last, and then upgrade in each writer's directory. A volume that another directory writes stays as it
    is. If a step fails, repeat the command. A form does not go back.
    """
    effect = f"this gives the directory and its volumes form {forms.NEWEST}, which older versions cannot read"
    check_meant(effect, yes=yes, dry_run=dry_run)
    archive = directory.maybe_archive
    if archive is not None:
        from catalog.errors import NoSuchBranch, NoSuchTopic  # a client of a daemon needs no catalog

        with directory.counting("upgrade"):
            for name in archive.branches.remote_names():
                try:
                    done = archive.upkeep.upgrade(name, dry_run=dry_run)
                except (NoSuchTopic, NoSuchBranch):
                    continue  # a deleted branch; an undelete brings it back in its form
                if done.form not in (0, forms.NEWEST):
                    to = done.form if done.is_elsewhere else forms.NEWEST
                    yield VolumeUpgraded(name, done.form, to, done.lsn)
    form = directory.log.form
    if not dry_run:
        directory.log.upgrade()
    yield DirectoryUpgraded(str(directory.log.path), form, forms.NEWEST)


def _print(output: Output, results: Iterator[VolumeUpgraded | DirectoryUpgraded], values: Mapping[str, Any]) -> None:
    is_dry, has_steps = values["dry_run"], False
    for result in results:
        if is_dry and not has_steps and result.form != result.to:
            has_steps = True
            output.note(_FIRST)
        output.show(result, _text(result, "would go" if is_dry else "went"))
    if is_dry and not has_steps:
        output.remark("nothing to upgrade here")


def _text(result: VolumeUpgraded | DirectoryUpgraded, verb: str) -> str:
    step = f"{verb} from form {result.form} to form {result.to}"
    if isinstance(result, DirectoryUpgraded):
        return f"{result.path}: form {result.form}, the newest" if result.form == result.to else f"{result.path} {step}"
    if result.form == result.to:
        return f"{result.topic}: form {result.form}; another directory writes it: upgrade there, or take it over first"
    return f"{result.topic} {step}" + (f" (lsn {result.lsn})" if result.lsn else "")


UPGRADE = Command("upgrade", upgrade, _print, reads=dry)
