"""The file of notifiers: allowed content, and no message that repeats the content."""

import json

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.notices.setting import SETTING, NotifierSetting, read_settings

EXAMPLE = '; e.g. [{"notifier": "my_company.notices.ChatNotifier", "arguments": {"conn_id": "chat"}}]'


@pytest.fixture
def file(tmp_path):
    return tmp_path / "notifiers.json"


def settings_in(file):
    return read_settings({SETTING: str(file)})


def test_without_the_setting_nobody_is_told():
    assert read_settings({}) == read_settings({SETTING: ""}) == ()


def test_one_entry_or_several(file):
    entry = {"notifier": "a.module.AClass", "arguments": {"to": "x"}, "events": ["failed"]}
    setting = NotifierSetting(notifier="a.module.AClass", arguments={"to": "x"}, events=("failed",))
    file.write_text(json.dumps(entry))
    assert settings_in(file) == (setting,)
    file.write_text(json.dumps([entry, {"notifier": "b.B"}]))
    assert settings_in(file) == (setting, NotifierSetting(notifier="b.B"))
    assert settings_in(file)[1].events == ("failed", "promoted", "kept", "approval")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('{"notifier": ', "no JSON (line 1: Expecting value)"),
        ('"secret"', "Input should be a valid list"),
        ("[{}]", "0.notifier: Field required"),
        ('[{"notifier": "Secret"}]', "0.notifier: must be a class with its module, as in a.module.AClass"),
        ('[{"notifier": "a.A", "arguments": "secret"}]', "0.arguments: Input should be a valid dictionary"),
        (
            '[{"notifier": "a.A", "events": ["secret"]}]',
            "0.events.0: Input should be 'failed', 'promoted', 'kept' or 'approval'",
        ),
        (
            '[{"notifier": "a.A", "args": "secret"}]',
            "0.args: Extra inputs are not permitted; known: notifier, arguments, events",
        ),
    ],
)
def test_what_is_wrong_is_told_without_any_value_of_the_file(file, text, finding):
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        settings_in(file)
    assert str(refused.value) == f"{SETTING}={file}: {finding}{EXAMPLE}"


def test_a_file_that_is_missing_or_no_text_is_told(file):
    with pytest.raises(ConfigError, match="No such file or directory; it names a JSON file"):
        settings_in(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"no JSON \(not a text\)"):
        settings_in(file)
