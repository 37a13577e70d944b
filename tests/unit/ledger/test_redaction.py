"""What must not be kept is found wherever it stands, and what only looks like it is left alone."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from arbiter.config.credentials import is_credential
from arbiter.ledger import blocks, redaction
from arbiter.ledger.redaction import OVERLAP, WINDOW, Redactor

ROOT = Path(__file__).parents[3]

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
    "name", ["APIKey", "OpenAIAPIKey", "X-Api-KEY", "API-key", "API_Key", "Api_key", "apiKEY", "api-key"]
)
def test_a_key_is_masked_under_every_usual_spelling_of_its_name(name):
    """As curl, Go, C# and Python spell it: what leads to the expression knows the same cases as the expression."""
    secret = "a1b2c3d4e5f6g7h8i9j0k1l2"
    for text in (f"{name}: {secret}", f'{name}="{secret}"', json.dumps({name: secret})):
        assert WHOLE.suspects(text.encode()) and secret not in WHOLE(text)


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
    headed = pem.replace("\n", "\nProc-Type: 4,ENCRYPTED\nComment: ada@example.com\n\n", 1)
    assert WHOLE(f"a {headed} b") == "a *** b"
    assert WHOLE(f"cat > key <<'END'\n{pem[:50]}'; (and so on)") == "cat > key <<'END'\n***'; (and so on)"


HEX = "0123456789abcdef0123456789abcdef"
BASIC = "YWRhOnBhc3N3b3JkIQ=="  # ada:password!
PASTED = [
    (f"curl -H 'x-api-key: {HEX}' https://h.example/", "curl -H 'x-api-key: ***' https://h.example/"),
    (f'curl -H "X-API-Key:{HEX}"', 'curl -H "X-API-Key:***"'),
    (f'curl -H "Authorization: Basic {BASIC}"', 'curl -H "Authorization: Basic ***"'),
    (f"authorization: basic {BASIC}", "authorization: basic ***"),
    (f"the header is `Basic {BASIC}`, I think", "the header is `Basic ***`, I think"),
    ("Authorization: Basic YWRhOmFi", "Authorization: Basic ***"),  # ada:ab
    (f"Authorization: Token {HEX}", "Authorization: Token ***"),
    (f"Authorization: {HEX}", "Authorization: ***"),
    ("Authorization: Bearer mF_9.B5f-4.1JqM", "Authorization: Bearer ***"),
    (f"PROXY-AUTHORIZATION: BASIC {BASIC}", "PROXY-AUTHORIZATION: BASIC ***"),
    (f"PRIVATE-TOKEN: {HEX}", "PRIVATE-TOKEN: ***"),
    (f'{{"X-Auth-Token": "{HEX}"}}', '{"X-Auth-Token": "***"}'),
    (f'req.Header.Set("X-Api-Key", "{HEX}")', 'req.Header.Set("X-Api-Key", "***")'),
    (f'headers["x-api-key"] = "{HEX}"', 'headers["x-api-key"] = "***"'),
    (f"Client(api_key='{HEX}')", "Client(api_key='***')"),
    (f":api_key => '{HEX}'", ":api_key => '***'"),
    (json.dumps({"a": json.dumps({"x-api-key": HEX})}), json.dumps({"a": json.dumps({"x-api-key": "***"})})),
    ("Cookie: theme=dark; sid=38afes7a8", "Cookie: ***"),
    ("cookie: PHPSESSID=298zf09hf012fh2; csrftoken=u32t4o3tb3gd3", "cookie: ***"),
    ("Set-Cookie: sid=38afes7a8; Path=/; HttpOnly", "Set-Cookie: ***; HttpOnly"),
    ("curl --cookie 'sid=38afes7a8' -b \"a=b; t=0a1b2c3d\"", "curl --cookie '***' -b \"***\""),
    ('{"Cookie": "sid=38afes7a8"}', '{"Cookie": "***"}'),
    ("curl -s -X POST \\\n  -u ada:pass-w0rd https://h/", "curl -s -X POST \\\n  -u ada:*** https://h/"),
    ('curl --user "ada:pass-w0rd"', 'curl --user "ada:***"'),
    ("the bot is 123456789:AAEhBOweik6ad9r_QXMENQjcrbGbqCr4K-c", "the bot is 123456789:***"),
    (
        "https://api.telegram.org/bot1234567890:AAEhBOweik6ad9r_QXMENQjcrbGbqCr4K-c/getMe",
        "https://api.telegram.org/bot1234567890:***/getMe",
    ),
    ("Log in as ada, password: hunter2", "Log in as ada, password: ***"),
    ("The password is hunter2.", "The password is ***"),
    ("my passphrase was `tr0ub4dor`, I think", "my passphrase was `***`, I think"),
    ('db_password = "hunter2" and password: 123456', 'db_password = "***" and password: ***'),
]


@pytest.mark.parametrize(("text", "kept"), PASTED, ids=lambda text: text[:32])
def test_what_people_paste_with_a_request_keeps_its_names_only(text, kept):
    assert WHOLE.suspects(json.dumps(text).encode())
    assert WHOLE(text) == kept
    assert WHOLE(f"{text}\n{text}") == f"{kept}\n{kept}"
    assert WHOLE(kept) is kept


@pytest.mark.parametrize(
    "text",
    [
        "Basic understanding of basic building blocks, Basic authentication",
        "Authorization: Bearer $TOKEN and x-api-key: ${ANTHROPIC_API_KEY}",
        "'x-api-key': process.env.ANTHROPIC_API_KEY_2,\nauthorization: settings.oauth2client.header_value",
        "authorization: tokenOfTheUser2Login(request), x-api-key: string, api_key: str | None = None",
        '_HEADERS = ("authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token")',
        'api_key="your-api-key-goes-here" and api_key: "my_api_key_of_2025"',
        "const cookie = req.headers.cookie; Cookie: name=value; document.cookie = 'username=John Doe'",
        "Set-Cookie: fig=newton; Path=/acme, cookies = {}, the cookie is a=b",
        "docker run -u 1000:1000 image; git checkout -b feature/x; curl -u $USER https://h/",
        "curl https://h.example/ && docker run -u 1000:1000 image",
        'START = b"-----BEGIN OPENSSH PRIVATE KEY-----"\nEND = b"-----END OPENSSH PRIVATE KEY-----"\n',
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "The password is required, is hashed with argon2id, is 12 characters long, is stored in config2.yaml",
        "password: string, password: sha256, password: utf8mb4, Password: Optional, password is input2.value",
        "the password is min-length-8, and was user_password2(form)",
        "12345678:ABChBOweik6ad9r_QXMENQjcrbGbqCr4K-c and 1234:AAEhBOweik6ad9r_QXMENQjcrbGbqCr4K-c at 12:AA:BB",
        "max-token: 0123456789abcdef0123, design-token: color-primary-500a",
    ],
)
def test_code_and_prose_that_speak_of_credentials_are_left_alone(text):
    assert WHOLE(text) is text


def test_no_word_behind_basic_is_taken_for_credentials():
    """They are told by what they decode to."""
    texts = [file.read_text() for file in (ROOT / "docs").rglob("*.md")]
    words = set(re.findall(r"[A-Za-z0-9_/-]{4,}", " ".join(texts)))
    assert len(words) > 2500
    assert [word for word in words if WHOLE(f"Basic {word}") != f"Basic {word}"] == []


def test_the_gateways_own_code_holds_no_secret():
    """Hundreds of files of ordinary code, about keys, tokens and headers at that."""
    files = sorted((ROOT / "arbiter").rglob("*.py"))
    assert len(files) > 200
    altered = {}
    for file in files:
        text = re.sub(r"://[^@\s]*@", "", file.read_text())
        if WHOLE(text) != text:
            altered[file.name] = [line for line in text.splitlines() if WHOLE(line) != line]
    assert altered == {}


def test_an_image_in_base64_holds_no_secret():
    """Nor one in base64 for URLs, beyond what only looks like a key by its first letters."""
    noise = random.Random(1).randbytes(3 << 20)
    text = f"<img src='data:image/png;base64,{base64.b64encode(noise).decode()}'>"
    assert WHOLE(text) == text
    assert WHOLE(base64.urlsafe_b64encode(noise).decode()).count("***") == 0


def test_what_stands_under_a_name_in_json_is_read_with_it():
    """An agent's call has its headers as members: a key of hexadecimal digits is one by its name alone."""
    assert WHOLE.member("X-Api-Key", HEX) == "***"
    assert WHOLE.member("apiKey", HEX) == "***"
    assert WHOLE.member("Authorization", f"Basic {BASIC}") == "Basic ***"
    assert WHOLE.member("cookie", "sid=38afes7a8") == "***"
    assert WHOLE.member("digest", HEX) is HEX and WHOLE.member("x-api-key", "string") == "string"
    assert WHOLE.member("x-api-key\n", HEX) == "***" and WHOLE.member(f"{SECRETS[0]}-token", "a") == "a"


CREDENTIAL_NAMES = (
    "access_token", "refresh_token", "auth_token", "id_token", "session_token", "client_secret", "private_key", "token",
    "accessToken", "refreshToken", "clientSecret", "privateKey", "sessionToken", "access-token", "Client-Secret",
    "ACCESS_TOKEN", "AWS_SECRET_ACCESS_KEY", "secretAccessKey", "x-amz-security-token", "github_token", "apikey",
    "signing_key", "Ocp-Apim-Subscription-Key", "jwt", "x-jwt", "x-auth", "x-sid", "auth", "credentials", "api_key_2",
)  # fmt: skip
PASSWORD_NAMES = ("password", "passwd", "x-passwd", "db_password", "dbPassword", "PGPASSWORD", "pwd", "passphrase")
INNOCENT_NAMES = (
    "max_tokens", "maxTokens", "token_count", "prompt_tokens", "completion_tokens", "token_type", "token_endpoint",
    "tokenizer", "author", "authority", "authors", "authorization_url", "next_page_token", "nextPageToken",
    "page_token", "continuation_token", "syncToken", "eos_token", "key", "public_key", "primary_key",
    "prompt_cache_key", "cache-key", "idempotency_key", "affinity_key", "api_key_id", "accessKeyId", "secret_name",
    "session_id", "message_sid", "inside", "password_hash_algorithm", "keyboard", "monkey", "signature", "digest",
)  # fmt: skip


@pytest.mark.parametrize("name", CREDENTIAL_NAMES)
def test_a_name_tells_a_credential_in_json_in_headers_in_queries_and_in_forms(name):
    """One list for all of them, however the name is spelt; what is written there as a placeholder stays."""
    assert WHOLE.member(name, HEX) == "***" and is_credential(name)
    assert WHOLE.suspects(json.dumps({name: HEX}).encode())
    for text in ("string", "$TOKEN", "${ACCESS_TOKEN}", "<your-access-token-0>", "{{ token }}", "your-token-goes-here",
                 "tokenOfTheCurrentUser", "****************", "a text with blanks and 12345678 in it"):  # fmt: skip
        assert WHOLE.member(name, text) == text


@pytest.mark.parametrize("name", PASSWORD_NAMES)
def test_a_password_is_any_word(name):
    for text in ("hunter2", "correct horse battery staple", "Sommer-2026!"):
        assert WHOLE.member(name, text) == "***"
    for text in ("", "string", "password", "$PASSWORD", "<password>", "********"):
        assert WHOLE.member(name, text) == text
    assert WHOLE.suspects(json.dumps({name: "hunter2"}).encode()) and is_credential(name)


@pytest.mark.parametrize("name", INNOCENT_NAMES)
def test_names_that_only_sound_like_one_keep_their_values(name):
    """Numbers, ids, places in a list, and what is public."""
    assert WHOLE.member(name, HEX) is HEX


@pytest.mark.parametrize("name", ["x-max-tokens", "x-prompt-tokens", "x-token-count", "x-ratelimit-limit-tokens"])
def test_a_header_that_tells_a_number_of_tokens_is_kept(name):
    assert not is_credential(name) and is_credential("x-access-tokens") and not is_credential("x-author")


NAMED = [
    (f"GET https://h/cb?access_token={HEX}&state=1", "GET https://h/cb?access_token=***&state=1"),
    (f"https://h/?a=1&refresh-token={HEX}", "https://h/?a=1&refresh-token=***"),
    (f"grant_type=refresh&client_secret={HEX}&a=b", "grant_type=refresh&client_secret=***&a=b"),
    (f"export GITHUB_TOKEN={HEX}", "export GITHUB_TOKEN=***"),
    (f'{{"clientSecret": "{HEX}"}}', '{"clientSecret": "***"}'),
    (f"X-Jwt: {HEX}", "X-Jwt: ***"),
    (f"x-auth: {HEX}", "x-auth: ***"),
    (f"user=ada&password=hunter2!&a={HEX}", f"user=ada&password=***&a={HEX}"),
    ('{"password": "hunter2!"}', '{"password": "***"}'),
    (f"https://h/list?page_token={HEX}&next-page-token={HEX}", None),
    (f"cache_key={HEX} and &primaryKey={HEX}, max_tokens={HEX}", None),
    ("password='your-password' and passwd = 'passwd', password=password, pass the password: as it is", None),
    ("token=tokens.next_one_of_2nd(line), secret = os.environ['A_SECRET_OF_2DAYS'], token=None", None),
    (f"api_key = {HEX}\ntoken= {HEX}", "api_key = ***\ntoken= ***"),
    (f"//registry.npmjs.org/:_authToken={HEX}", "//registry.npmjs.org/:_authToken=***"),
    (f"tool --api-key {HEX} --auth-token '{HEX}' run", "tool --api-key *** --auth-token '***' run"),
    ("mysql --password Sommer-2026!", "mysql --password ***"),
    ("db:\n  password: Sommer-2026!\n", "db:\n  password: ***\n"),
    (f"<apiKey>{HEX}</apiKey><password>Sommer-2026!</password>", "<apiKey>***</apiKey><password>***</password>"),
    (f'{{"auths": {{"h": {{"auth": "{HEX}"}}}}}}', '{"auths": {"h": {"auth": "***"}}}'),
    (f"X-Arbiter-Key: {HEX}", "X-Arbiter-Key: ***"),
    ("machine h login ada password hunter2", "machine h login ada password ***"),
    (f"https://hooks.slack.com/services/T0/B0/{HEX}", "https://hooks.slack.com/services/***"),
    (f"https://h/?sv=2022&sig={HEX}%3D", "https://h/?sv=2022&sig=***"),
    ("use --password or --token as you like, --token-limit 0123456789abcdef0123", None),
    ("password: hashed_password_2(x), password: str = None, password: z.string().min(8)", None),
    ("token = sha256_hexdigest_of_it, private_key = Ed25519PrivateKey.generate()", None),
    ("<label>Password</label>, the token 0123456789abcdef0123, <a>token>Next-Page-Of-2</a>", None),
    ("f(token=line1token_of_theirs.upper()), the_secret_of=12, secret=the_secret_of_success", None),
]


@pytest.mark.parametrize(("text", "kept"), NAMED, ids=lambda text: str(text)[:24])
def test_names_tell_credentials_in_texts_too(text, kept):
    """In addresses, forms, settings and code: the whole name counts, and not only its end."""
    assert WHOLE(text) == (text if kept is None else kept)
    if kept is not None:  # the arguments of a call are JSON within JSON
        arguments = json.dumps({"command": text})
        assert json.loads(WHOLE(arguments)) == {"command": kept}
        assert WHOLE.suspects(json.dumps({"arguments": arguments}).encode())


def test_lists_and_pairs_are_read_with_their_names():
    """Headers come as pairs, and keys several at once."""
    said = {
        "headers": [{"name": "X-Auth", "value": HEX}, {"name": "Accept", "value": HEX}, {"key": "token", "value": HEX}],
        "api_keys": [HEX, "string"],
        "digests": [HEX],
    }
    block = blocks.made(json.dumps({"type": "tool_use", "input": said}).encode(), WHOLE)
    assert json.loads(block.text)["input"] == {
        "headers": [
            {"name": "X-Auth", "value": "***"},
            {"name": "Accept", "value": HEX},
            {"key": "token", "value": "***"},
        ],
        "api_keys": ["***", "string"],
        "digests": [HEX],
    }


def test_a_name_is_read_once_however_often_it_stands_there():
    """A long run of letters before each of many ends is looked at as far as a name goes."""
    for piece in ("a" * 79 + "token=" + HEX, "a_" * 40 + "secret: " + HEX, "token" * 20, "password=" * 3):
        WHOLE(piece * (300_000 // len(piece)))


def test_what_somebody_signed_is_not_read_for_it():
    """Signatures and what only a provider can read are kept to the letter, also where they hold such words."""
    noise = f"Basic {BASIC} x-api-key: {HEX} Cookie: sid=38afes7a8"
    opaque = [
        {"type": "thinking", "thinking": "hm", "signature": noise},
        {"type": "redacted_thinking", "data": noise},
        {"type": "reasoning", "id": noise, "summary": [], "encrypted_content": noise},
        {"type": "reasoning.encrypted", "data": noise},
        {"type": "reasoning", "id": "rs", "access_token": "", "summary": [], "encrypted_content": f"token={HEX}"},
        {"type": "function", "id": noise, "thought_signature": noise, "function": {"name": "a", "arguments": "{}"}},
    ]
    for part in opaque:
        block = blocks.made(json.dumps({"role": "assistant", "content": [part]}).encode(), WHOLE)
        assert json.loads(block.text)["content"] == [part]


def test_the_headers_of_an_agents_call_are_masked_where_they_stand():
    call = {"type": "tool_use", "id": "t", "name": "http", "input": {"headers": {"X-Api-Key": HEX, "Accept": "*/*"}}}
    block = blocks.made(json.dumps({"role": "assistant", "content": [call]}).encode(), WHOLE)
    assert json.loads(block.text)["content"][0]["input"]["headers"] == {"X-Api-Key": "***", "Accept": "*/*"}


def repeats(parsed: Any) -> Iterator[tuple[Any, int, Any]]:
    """Each repeat within a parsed expression: how it repeats, at most how often, and what."""
    for op, value in parsed:
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            yield op, value[1], value[2]
        for inner in value if isinstance(value, tuple | list) else (value,):
            branches = inner if isinstance(inner, list) else [inner]
            for branch in branches:
                if isinstance(branch, _parser.SubPattern):
                    yield from repeats(branch)


def is_one_character(body: Any) -> bool:
    return body.getwidth() == (1, 1)


@pytest.mark.parametrize("kind", redaction._KINDS, ids=lambda kind: kind.literals[0])
def test_no_expression_can_try_the_same_text_in_two_ways(kind):
    """What is repeated without a bound is never given back, or is taken one by one; nothing else repeats a repeat."""
    found = list(repeats(_parser.parse(kind.pattern.pattern)))
    for op, most, body in found:
        if op is _constants.POSSESSIVE_REPEAT:
            continue
        assert most <= 512 or (op is _constants.MIN_REPEAT and is_one_character(body))
        assert most <= 1 or is_one_character(body), "a repeat of repeats"
    if kind.literals != ("AKIA", "ASIA"):
        assert found


@pytest.mark.parametrize("kind", redaction._KINDS, ids=lambda kind: kind.literals[0])
def test_an_expression_is_tried_where_its_literal_stands_and_nowhere_else(kind, monkeypatch):
    tried = []

    class Counting:
        def match(self, text, at):
            tried.append(at)
            return kind.pattern.match(text, at)

    monkeypatch.setattr(redaction, "_KINDS", (kind._replace(pattern=Counting()),))
    for literal in kind.literals:
        tried.clear()
        text = f"{literal}?" * 1000 + "x" * 100_000
        assert Redactor()(text) == text
        assert len(tried) == sum(text.count(one) for one in kind.literals if one in literal)


@pytest.mark.parametrize(
    "piece",
    [
        *(literal for kind in redaction._KINDS for literal in kind.literals),
        *("Bearer a", "x-api-key: a", "x-api-key: -token", "cookie=", "cookie: a=", " -b a", " -u a:", "curl -u "),
        *("\\neyJaaaaaaaa", "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----\na", "-----END PRIVATE KEY", "://a:", "://a"),
        *("Basic a", "\\u0041sk-", "="),
    ],
)
def test_a_long_text_of_beginnings_is_read_in_proportion(piece):
    """Twice the text is twice the work: were it four times the work, this would take an hour."""
    Redactor()(piece * (300_000 // len(piece)))


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
    assert not WHOLE.suspects(json.dumps({"a": re.sub(r"\W", "", "nothing here")}).encode())
