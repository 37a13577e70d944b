"""What a provider is sent to show who asks, as written: keys of a pool, certificates, a login of ours."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from arbiter.config.sections import Duration, Secret, Section, doc, instead


class Tls(Section):
    ca: Annotated[str | None, doc("PEM file of the authority to trust, in place of the system's.")] = None
    cert: Annotated[str | None, doc("PEM file of a client certificate.")] = None
    key: Annotated[str | None, doc("PEM file of its private key, where it is not in `cert`.")] = None


class Key(Section):
    """One key of a pool."""

    hints: ClassVar[dict[str, str]] = instead("label", "name", "id")

    label: Annotated[
        str | None,
        doc(
            "What rows, logs and state call it. Default: `key-1`, `key-2`, … by its place in the list. Unique within "
            "the provider."
        ),
    ] = None
    key: Annotated[
        Secret | None,
        Meta(extra={"unset": ", or remove it from the pool"}),
        doc("Credential sent to the provider; usually `${VARIABLE}`."),
    ] = None
    key_file: Annotated[str | None, doc("File that holds the credential, in place of `key`.")] = None


class OAuth(Section):
    """A login of the gateway's own. Nothing of a vendor's is built in: its addresses and client id are its word."""

    hints: ClassVar[dict[str, str]] = {
        **instead("token_url", "token_endpoint", "url"),
        **instead("authorize_url", "authorization_endpoint", "auth_url"),
        **instead("device_url", "device_authorization_endpoint"),
        **instead("scopes", "scope"),
    }

    token_url: Annotated[
        str | None, doc("Where a refresh token is turned into an access token: `https`, or `http` on loopback.")
    ] = None
    client_id: Annotated[str | None, doc("Whom the vendor knows this client as.")] = None
    client_secret: Annotated[Secret | None, doc("Its secret, where it has one; usually `${VARIABLE}`.")] = None
    scopes: Annotated[list[str], doc("What is asked for.")] = field(default_factory=list)
    encoding: Annotated[
        Literal["form", "json"], doc("How requests for tokens are written: `form` as RFC 6749 has it, or `json`.")
    ] = "form"
    authorize_url: Annotated[
        str | None, doc("Where a person logs in with a browser (`arbiter login`, with PKCE and a code to paste).")
    ] = None
    redirect_uri: Annotated[str | None, doc("Where the browser is sent with the code, as the vendor knows it.")] = None
    device_url: Annotated[
        str | None, doc("Where a login by device begins (RFC 8628), where the vendor has such a thing.")
    ] = None
    parameters: Annotated[dict[str, str], doc("More for the address at which a person logs in.")] = field(
        default_factory=dict
    )
    refresh_before_s: Annotated[
        Duration, doc("How long before its end an access token is replaced; a fifth of its life at most.")
    ] = field(name="refresh_before", default=300.0)
    clients: Annotated[
        list[str], doc("The clients that may be served on this login. Default: everybody who may name the model.")
    ] = field(default_factory=list)
