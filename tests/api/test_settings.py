"""Settings: where they come from, what is refused, and that docs/howto/service.md lists them. Run as a script it writes that list."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloakwork.api.settings import Settings, load_settings
from cloakwork.fhe_core.errors import ParameterError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "service.md"
BEGIN, END = "<!-- settings: made by tests/api/test_settings.py from api/settings.py -->", "<!-- settings end -->"


def settings_table() -> str:
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = (
            ""
            if field.default is None
            else str(field.default).lower()
            if isinstance(field.default, bool)
            else field.default
        )
        rows.append(f"| `{name}` | {f'`{default}`' if default != '' else ''} | {field.description} |")
    return "\n".join(rows)


def documented(text: str) -> tuple[str, str, str]:
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    return before, table.strip(), after


def test_the_page_lists_every_setting():
    assert documented(PAGE.read_text(encoding="utf-8"))[1] == settings_table()


def test_flags_go_before_environment_before_file_before_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "service.toml"
    file.write_text('port = 1\nthreads = 1\nlog_level = "debug"\n')
    monkeypatch.setenv("CLOAKWORK_CONFIG", str(file))
    monkeypatch.setenv("CLOAKWORK_THREADS", "2")
    monkeypatch.setenv("CLOAKWORK_PORT", "2")
    found = load_settings(port=3, host=None)
    assert (found.port, found.threads, found.log_level, found.host) == (3, 2, "debug", "127.0.0.1")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"port": 70000}, "^settings: --port: expected a value less than or equal to 65535$"),
        ({"insecure_local": True, "host": "0.0.0.0"}, "^settings: --insecure-local serves loopback"),
        ({"tls_certificate": "a.pem"}, "belong together"),
        ({"log_level": "loud"}, "--log-level: expected 'debug'"),
        ({"max_samples": 0}, "--max-samples"),
        ({"port": "abc"}, "^settings: --port: expected a valid integer, got 'abc'$"),
        ({"trusted_proxies": "10.0.0.0/8 proxy.example"}, "proxy.example"),
        ({"trusted_proxies": "10.0.0.1/8"}, "10.0.0.1/8"),
    ],
)
def test_what_makes_no_sense_is_refused(flags: dict[str, object], says: str):
    with pytest.raises(ParameterError, match=says):
        load_settings(**flags)


def test_a_key_of_the_file_that_is_no_setting_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "service.toml"
    file.write_text("prot = 1\n")
    monkeypatch.setenv("CLOAKWORK_CONFIG", str(file))
    with pytest.raises(ParameterError, match="prot: there is no such setting"):
        load_settings()


def test_a_wrong_value_is_named_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "service.toml"
    file.write_text("threads = 'many'\n")
    monkeypatch.setenv("CLOAKWORK_CONFIG", str(file))
    with pytest.raises(ParameterError, match=r"service.toml: threads: expected a valid integer, got 'many'$"):
        load_settings()
    monkeypatch.setenv("CLOAKWORK_THREADS", "few")
    with pytest.raises(ParameterError, match=r"settings: CLOAKWORK_THREADS: expected a valid integer, got 'few'$"):
        load_settings()


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLOAKWORK_CONFIG", "/nowhere/service.toml")
    with pytest.raises(ParameterError, match="there is no file '/nowhere/service.toml'"):
        load_settings()


def test_loopback_is_any_of_its_names():
    assert load_settings(insecure_local=True, host="::1").host == "::1"
    assert load_settings(insecure_local=True, host="localhost").host == "localhost"


if __name__ == "__main__":
    before, _, after = documented(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(f"{before}{BEGIN}\n{settings_table()}\n{END}{after}", encoding="utf-8")
