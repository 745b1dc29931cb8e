from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from seglog.errors import InvalidSetting
from seglog.files.directory import load_settings
from seglog.values.config import (
    check_settings,
    choice,
    from_section,
    number,
    path,
    settings_of,
    switch,
    toml_lines,
    variables_of,
)


@dataclass(frozen=True, slots=True)
class Some:
    SECTION: ClassVar = "some"

    size_bytes: int = number(10, "bytes", 2, 20, "of something")
    wait_s: int = number(0, "seconds", 0, None, "at least")
    color: str = choice("red", ("red", "green", "blue"), "to see")
    place: str = path("to go to")
    loud: bool = switch(False, "to hear")

    def __post_init__(self) -> None:
        check_settings(self)


SETTINGS = settings_of(Some)


def test_a_setting_says_all_about_itself() -> None:
    size, wait, color, place, loud = SETTINGS.values()
    assert (size.name, size.variable, size.allowed) == ("some.size_bytes", "SEGLOG_SOME_SIZE_BYTES", "2 to 20")
    assert (wait.allowed, color.allowed) == ("0 and more", "red, green or blue")
    assert (place.allowed, place.default, place.parse("7")) == ("a path", "", "7")
    assert (loud.allowed, loud.default, loud.default_text, loud.parse("true")) == (
        "true or false",
        False,
        "false",
        True,
    )
    assert (size.default, size.unit, size.meaning) == (10, "bytes", "of something")
    assert Some() == Some(size_bytes=10, wait_s=0, color="red")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size_bytes", 1),
        ("size_bytes", 21),
        ("size_bytes", True),
        ("size_bytes", 5.0),
        ("size_bytes", "5"),
        ("size_bytes", None),
        ("wait_s", -1),
        ("color", "pink"),
        ("color", 1),
        ("color", ["red"]),
        ("place", 1),
        ("place", "a\0b"),
        ("loud", 1),
        ("loud", "true"),
        ("loud", None),
    ],
)
def test_what_is_not_allowed_is_refused_by_name_wherever_it_comes_from(key: str, value: object) -> None:
    for make in (lambda: Some(**{key: value}), lambda: from_section(Some, {key: value}, {})):  # type: ignore[arg-type]
        with pytest.raises(InvalidSetting) as caught:
            make()
        assert caught.value.key == f"some.{key}"
        assert SETTINGS[key].allowed in str(caught.value)


def test_a_number_in_quotes_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidSetting, match="2 to 20; write the number without quotes"):
        from_section(Some, {"size_bytes": "5"}, {})
    with pytest.raises(InvalidSetting) as caught:
        from_section(Some, {"size_bytes": "five"}, {})
    assert "quotes" not in str(caught.value)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default() -> None:
    variables = {"SEGLOG_SOME_SIZE_BYTES": "7", "SEGLOG_OTHER_SIZE_BYTES": "x", "SEGLOG_DIR": "/d", "HOME": "/h"}
    assert from_section(Some, {"size_bytes": 5, "color": "blue"}, variables) == Some(7, 0, "blue")
    assert from_section(Some, {}, {"SEGLOG_SOME_COLOR": "green", "SEGLOG_SOME_WAIT_S": ""}) == Some(color="green")
    assert from_section(Some, {}, {}) == Some()


@pytest.mark.parametrize("text", ["1", "21", "-5", "5.5", "five", " 5", "0x5", "\N{ARABIC-INDIC DIGIT FIVE}", "5_0"])
def test_a_variable_that_says_nothing_allowed_is_named(text: str) -> None:
    with pytest.raises(InvalidSetting, match="from SEGLOG_SOME_SIZE_BYTES") as caught:
        from_section(Some, {}, {"SEGLOG_SOME_SIZE_BYTES": text})
    assert caught.value.key == "some.size_bytes"


@pytest.mark.parametrize("text", ["1", "yes", "True", "TRUE", " true"])
def test_a_switch_takes_two_words_from_the_environment(text: str) -> None:
    assert from_section(Some, {}, {"SEGLOG_SOME_LOUD": "true"}) == Some(loud=True)
    with pytest.raises(InvalidSetting, match="from SEGLOG_SOME_LOUD"):
        from_section(Some, {}, {"SEGLOG_SOME_LOUD": text})


def test_a_variable_of_no_setting_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="SEGLOG_SOME_SIZE: is unknown; there are SEGLOG_SOME_COLOR"):
        variables_of(SETTINGS.values(), {"SEGLOG_SOME_SIZE": "5"})


def test_the_section_of_a_new_file_shows_the_defaults() -> None:
    text = toml_lines(Some)
    assert tomllib.loads(text) == {"some": {}}
    shown = tomllib.loads(text.replace("\n# ", "\n"))["some"]
    assert shown == {"size_bytes": 10, "wait_s": 0, "color": "red", "place": "", "loud": False}
    assert '# color = "red"    # to see\n' in text
    assert "# size_bytes = 10  # bytes: of something\n" in text


def test_the_section_of_a_new_file_shows_the_values_that_are_not_the_default() -> None:
    values = Some(size_bytes=11, place='a "quoted" \u00fc')
    assert tomllib.loads(toml_lines(Some, values)) == {"some": {"size_bytes": 11, "place": 'a "quoted" \u00fc'}}


def test_a_setting_that_moved_is_read_in_both_sections(tmp_path: Path) -> None:
    """`disk_reject_bytes` was in [serve] before the log itself had it."""
    file = tmp_path / "seglog.toml"
    for text, variables, size_bytes in (
        ("[serve]\ndisk_reject_bytes = 1\n", {}, 1),
        ("[serve]\ndisk_reject_bytes = 1\n[log]\ndisk_reject_bytes = 2\n", {}, 2),
        ("[serve]\ndisk_reject_bytes = 1\n", {"SEGLOG_SERVE_DISK_REJECT_BYTES": "3"}, 3),
        ("", {"SEGLOG_SERVE_DISK_REJECT_BYTES": "3", "SEGLOG_LOG_DISK_REJECT_BYTES": "4"}, 4),
    ):
        file.write_text(text)
        assert load_settings(file, variables).disk_reject_bytes == size_bytes
    file.write_text("[serve]\ndisk_reject_bytes = -1\n")
    with pytest.raises(InvalidSetting, match=r"log\.disk_reject_bytes"):
        load_settings(file)
