"""Test how the words of a command line become a request."""

from __future__ import annotations

import pytest

from offload.cli.parser import Request, UsageError, request_of
from offload.operations.command_list import COMMANDS


def parsed(line: str, **variables: str) -> Request:
    return request_of(line.split(), variables)


@pytest.mark.parametrize(
    "line",
    [
        "read t --from 5 --tag eu --follow",
        "read --from=5 --tag=eu --follow t",
        "read --follow --from 5 t --tag eu",
        "read --from 7 --from 5 --tag eu --follow -- t",
    ],
)
def test_options_stand_before_and_after_arguments(line: str) -> None:
    request = parsed(line)
    assert (request.kind, request.path) == ("run", "read")
    assert {name: value for name, value in request.values.items() if value not in (None, False)} == {
        "topic": "t", "start": 5, "tag": "eu", "follow": True,
    }  # fmt: skip


def test_the_last_argument_of_bisect_takes_the_rest_of_the_line() -> None:
    for line in ("bisect t --good lsn:1 run grep -q --json x", "bisect --json --good lsn:1 t run grep -q --json x"):
        request = parsed(line)
        assert request.options["as_json"] is line.startswith("bisect --json")
        assert (request.values["good"], request.values["command"]) == ("lsn:1", ["grep", "-q", "--json", "x"])


def test_every_parameter_has_a_value() -> None:
    for path, command in COMMANDS.items():
        words = [*path.split("/")]
        for each in command.parameters:
            if each.is_required:
                plain = "1" if each.kind in ("int", "float") else "x"
                words += [*each.options[:1], each.choices[0] if each.choices else plain]
        request = request_of(words, {})
        assert list(request.values) == [each.name for each in command.parameters]


def test_the_options_of_the_top_stand_before_the_command_and_json_after_it_too() -> None:
    request = parsed("-C data --remote file:///r --json read t")
    top = {
        "directory": "data",
        "remote": "file:///r",
        "as_json": True,
        "debug": False,
        "strict_time": False,
        "plain": False,
        "verbose": False,
        "no_pager": False,
        "daemon": None,
        "token_file": None,
        "store_timeout": None,
        "all": False,
    }
    assert request.options == top
    assert parsed("-Cdata topic --json list").options["as_json"] is True
    assert parsed("topic list --json").options["as_json"] is True
    assert parsed("read t").options["as_json"] is False
    with pytest.raises(UsageError, match="read has no option --dir: it stands before the command"):
        parsed("read t --dir data")


def test_init_has_an_option_of_the_same_name_as_the_top() -> None:
    request = parsed("--remote file:///a init --remote file:///b")
    assert (request.options["remote"], request.values["remote"]) == ("file:///a", "file:///b")


def test_a_variable_stands_for_an_option_of_the_top() -> None:
    assert parsed("read t", SEGLOG_DIR="there", SEGLOG_REMOTE="file:///r").options["directory"] == "there"
    assert parsed("-C here read t", SEGLOG_DIR="there").options["directory"] == "here"
    assert parsed("read t", SEGLOG_DIR="").options["directory"] is None


def test_values_have_their_kinds() -> None:
    assert parsed("read t@main --wait 1.5 --from -1").values["topic"] == "t"
    assert parsed("read t@main --wait 1.5 --from -1").values["wait"] == 1.5
    assert parsed("read t@main --wait 1.5 --from -1").values["start"] == -1
    assert parsed("append t -").values["file"] == "-"
    assert parsed("append t").values["input_format"] == "lines"
    assert parsed("tag create t now -m text").values["message"] == "text"
    assert parsed("offload --drop-hot t").values["drop_hot"] is True


@pytest.mark.parametrize(
    ("line", "kind", "path"),
    [
        ("--help", "help", ""),
        ("--json --help", "help", ""),
        ("read --help", "help", "read"),
        ("read --from 5 --help", "help", "read"),
        ("topic --help", "help", "topic"),
        ("topic create --help", "help", "topic/create"),
        ("", "no command", ""),
        ("topic", "no command", "topic"),
        ("-h", "help", ""),
        ("help", "help", ""),
        ("help topic", "help", "topic"),
        ("help topic create", "help", "topic/create"),
        ("ls -h", "help", "topic/list"),
        ("version", "version", ""),
        ("version --help", "help", "version"),
        ("--version", "version", ""),
        ("--version --help", "version", ""),
    ],
)
def test_help_and_the_version_need_no_argument(line: str, kind: str, path: str) -> None:
    assert (parsed(line).kind, parsed(line).path) == (kind, path)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("read", "read needs TOPIC", "seglog read --help"),
        ("read t u", "read takes no argument 'u'", "seglog read --help"),
        ("read t --nope", "read has no option --nope", "seglog read --help"),
        ("read t --unti 5", "read has no option --unti (similar: --until", "seglog read --help"),
        ("read t --from", "--from needs a value", "seglog read --help"),
        ("read t --from x", "--from takes a whole number, not 'x'", "seglog read --help"),
        ("read t --limit 0", "--limit takes a whole number from 1 on, not 0", "seglog read --help"),
        ("read t --wait nan", "--wait takes a number from 0 on, not nan", "seglog read --help"),
        ("read t --follow=1", "--follow takes no value", "seglog read --help"),
        ("append t --format csv", "--format takes lines or jsonl, not 'csv'", "seglog append --help"),
        ("completion csh", "SHELL takes bash, zsh or fish, not 'csh'", "seglog completion --help"),
        ("offload --no-drop-hot t", "offload has no option --no-drop-hot", "seglog offload --help"),
        ("raed t", "there is no command raed (similar: read", "seglog --help"),
        ("topic creat t", "there is no command topic creat (similar: create", "seglog topic --help"),
        ("--frob", "there is no option --frob", "seglog --help"),
        ("topic -x create", "topic has no option -x", "seglog topic --help"),
    ],
)
def test_wrong_words_are_refused_with_the_help_that_explains_them(line: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(line)
    assert str(caught.value).startswith(message)
    assert hint in caught.value.hint


def test_a_word_that_is_not_utf_8_is_refused_unless_it_names_a_file() -> None:
    for words in (
        ["read", "t", "--tag", "\udcff"],
        ["read", "\udcff"],
        ["restore", "t", "--to", "head", "--as", "\udcff"],
    ):
        with pytest.raises(UsageError, match="is not UTF-8"):
            request_of(words, {})
    assert request_of(["append", "t", "\udcff"], {}).values["file"] == "\udcff"
