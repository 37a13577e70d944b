"""AWS Signature Version 4, by AWS's own published cases."""

from __future__ import annotations

import pytest

from arbiter.wire.dialects.sigv4 import authorization, quoted, stamp

DATE = "20150830T123600Z"


def signed(method: str, target: str, headers: list[tuple[str, str]], body: bytes = b"") -> str:
    return authorization(
        access_id="AKIDEXAMPLE",
        secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        region="us-east-1",
        service="service",
        method=method,
        target=target,
        headers=[("Host", "example.amazonaws.com"), ("X-Amz-Date", DATE), *headers],
        body=body,
        date=DATE,
    )


# Source: AWS, "Signature Version 4 test suite" (aws4_testsuite), the `.authz` of each case.
@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "names", "signature"),
    [
        ("GET", "/", [], b"", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", [], b"", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            [],
            b"",
            "",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "GET",
            "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            [],
            b"",
            "",
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
        (
            "GET",
            "/",
            [("My-Header1", " value1"), ("My-Header2", ' "a   b   c"')],
            b"",
            "my-header1;my-header2;",
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
        (
            "GET",
            "/",
            [("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")],
            b"",
            "my-header1;",
            "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
        ),
        (
            "POST",
            "/",
            [("Content-Type", "application/x-www-form-urlencoded")],
            b"Param1=value1",
            "content-type;",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
    ids=["get-vanilla", "post-vanilla", "get-vanilla-query-order-key-case", "get-unreserved", "get-header-value-trim",
         "get-header-key-duplicate", "post-x-www-form-urlencoded"],
)  # fmt: skip
def test_awss_own_cases_are_signed_as_aws_does(
    method: str, target: str, headers: list[tuple[str, str]], body: bytes, names: str, signature: str
) -> None:
    first, _, rest = "content-type;host;x-amz-date".partition("host") if names == "content-type;" else ("", "", "")
    listed = f"{first}host{rest}" if first else f"host;{names}x-amz-date"
    assert signed(method, target, headers, body) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={listed}, Signature={signature}"
    )


def test_another_day_or_body_or_path_is_another_signature() -> None:
    """The key for a day is kept, and is not that of the next."""
    told = {signed("POST", target, []) for target in ("/", "/a", "/b%3A")} | {signed("POST", "/", [], b"x")}
    assert len(told) == 4
    later = authorization(
        access_id="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", region="us-east-1",
        service="service", method="POST", target="/", headers=[("host", "example.amazonaws.com")], body=b"",
        date="20150831T123600Z",
    )  # fmt: skip
    assert "20150831/us-east-1" in later and later.rpartition("=")[2] not in signed("POST", "/", [])


def test_what_stands_in_a_path_is_encoded_and_a_moment_is_utc() -> None:
    assert quoted("arn:aws:bedrock:eu-west-1:1:x/é a~") == "arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ax%2F%C3%A9%20a~"
    assert quoted("/a/b%3A", "/") == "/a/b%253A"
    assert stamp(1_440_938_160_999) == DATE
