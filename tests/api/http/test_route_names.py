"""Paths become templates, so that nobody makes labels by asking."""

from __future__ import annotations

import pytest

from cloakwork.api.http.route_names import NO_ROUTE, RouteNames, method_name

ROUTES = RouteNames(["/v2", "/v2/models/{model}", "/v2/models/{model}/versions/{version}/infer", "/"])


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v2", "/v2"),
        ("/", "/"),
        ("/v2/models/iris-tree", "/v2/models/{model}"),
        ("/v2/models/{model}", "/v2/models/{model}"),
        ("/v2/models/a/versions/1/infer", "/v2/models/{model}/versions/{version}/infer"),
        ("/v2/models/a/versions/1/infer/", NO_ROUTE),
        ("/v2/models/", NO_ROUTE),
        ("/v2/models/a\nb", "/v2/models/{model}"),
        ("/V2", NO_ROUTE),
        ("", NO_ROUTE),
        ("/" + "x" * 30_000, NO_ROUTE),
    ],
)
def test_templates(path: str, route: str):
    assert ROUTES.of(path) == route


def test_methods_that_http_does_not_have_are_one():
    assert [method_name(each) for each in ("GET", "PATCH", "BREW", "get")] == ["GET", "PATCH", "other", "other"]
