"""What must not be kept is found wherever it stands, and what only looks like it is left alone."""

from __future__ import annotations

import json
import re

import pytest

from arbiter.ledger.redaction import OVERLAP, WINDOW, Redactor, is_credential

SECRETS = [
    "sk-ant-api03-Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OQ-AA",
    "sk-proj-Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OQ",
    "sk-or-v1-0123456789abcdef0123456789abcdef",
    "arb-Zm9vYmFyYmF6cXV4MDEy",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0_abcdefghijklmnopqrstuvwxyz",
    "glpat-abcdefghij0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-123456789012-abcdefghijkl",
    "AIzaSyA0123456789abcdefghijklmnopqrstuvw",
    "hf_abcdefghijABCDEFGHIJ0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
]
WHOLE = Redactor()


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:10])
@pytest.mark.parametrize(
    "around",
    ["%s", "key=%s", "export KEY='%s'\n", "(%s)", "see\t%s, please", json.dumps({"arguments": '{"a":"\n%s"}'})],
    ids=["alone", "assigned", "quoted", "bracketed", "in a sentence", "in JSON within JSON"],
)
def test_credentials_of_known_shapes_are_masked_wherever_they_stand(secret, around):
    text = around % secret
    assert WHOLE.suspects(text.encode())
    assert WHOLE(text) == around % "***"


@pytest.mark.parametrize(
    "text",
    [
        "task-management-system-overview and desk-with-a-very-long-name",
        "the bearer authentication scheme",
        "https://example.com/path?x=1 and http://host:8080/a@b",
        "ghp_short, AKIA and hf_",
        "eyJ is how a token begins",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_what_only_looks_like_one_is_left_alone(text):
    assert WHOLE(text) is text


def test_what_names_a_secret_keeps_its_name():
    assert WHOLE("Authorization: Bearer abc.DEF-123456789") == "Authorization: Bearer ***"
    assert WHOLE("postgres://ada:pass-w0rd@db/ledger") == "postgres://ada:***@db/ledger"
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert WHOLE(f"aws_secret_access_key = {key}") == "aws_secret_access_key = ***"
    pem = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----"
    assert WHOLE(f"a\n{pem}\nb") == "a\n***\nb"
    assert WHOLE(f"a {pem[:50]}") == "a ***"  # cut off, and no less a key


def test_our_own_secrets_are_masked_whatever_they_look_like():
    redact = Redactor({'quoted"secret', "plain-words-secret"})
    assert redact.suspects(b'{"a":"plain-words-secret"}') and redact.suspects(b'{"a":"quoted\\"secret"}')
    assert not redact.suspects(b'{"a":"nothing"}')
    assert redact.suspects(b'{"a":"plain\\u002dwords-secret"}')
    assert redact('of quoted"secret and plain-words-secret') == "of *** and ***"


def test_a_pattern_finds_its_matches_at_every_place_of_a_long_text():
    """Windows cut a text wherever they like; no match is lost or found twice for that."""
    redact = Redactor((), [r"\d{3}-\d{2}-\d{4}"])
    number = "123-45-6789"
    for start in [0, 1, *range(WINDOW - 20, WINDOW + 2), WINDOW + OVERLAP - 5, 3 * WINDOW - 4]:
        text = "x" * start + number + "y" * (4 * WINDOW - start)
        assert redact(text) == text.replace(number, "***")


def test_a_pattern_costs_in_proportion_to_the_text():
    """A pattern that would look from each character to the text's end takes as many steps again for twice the text."""
    redact = Redactor((), [r"[\w.]+@[\w.]+"])
    assert redact("a" * 200_000) == "a" * 200_000  # 20 billion steps without windows
    assert redact("a" * 5000 + " ada@example.com").endswith(" ***")


def test_credential_shaped_headers_lose_their_value():
    fields = {
        "authorization": "Bearer x",
        "x-api-key": "k",
        "cookie": "a=b",
        "x-amz-security-token": "t",
        "x-client-secret": "s",
        "user-agent": f"agent/1 ({SECRETS[0]})",
        "anthropic-ratelimit-tokens-remaining": "1000",
        "x-ratelimit-remaining-tokens": "5",
        "accept": "*/*",
    }
    kept = WHOLE.headers(fields)
    assert list(kept) == list(fields)
    masked = {name for name, value in kept.items() if value == "***"}
    assert masked == {"authorization", "x-api-key", "cookie", "x-amz-security-token", "x-client-secret"}
    assert kept["user-agent"] == "agent/1 (***)" and kept["anthropic-ratelimit-tokens-remaining"] == "1000"
    assert is_credential("Proxy-Authorization") and not is_credential("content-type")


def test_no_shape_is_without_a_literal_that_leads_to_it():
    """A secret of each shape is suspected in raw bytes, before anything is decoded."""
    for secret in SECRETS:
        spelt = json.dumps({"a": [secret]})
        assert WHOLE.suspects(spelt.encode()) and WHOLE.suspects(spelt.replace("/", "\\/").encode()), secret
    assert not WHOLE.suspects(json.dumps({"a": re.sub(r"\W", "", "no secrets here")}).encode())
