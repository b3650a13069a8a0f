"""Requests and answers of a device, for the OpenAPI document (RFC 8628, 3.1 to 3.4)."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

CLIENT_ID: Final = "countersign-cli"
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
CODE_CHARS_MAX: Final = 200

ClientId = Annotated[Literal["countersign-cli"], Meta(description="The command line.")]


class DeviceCodeRequest(Struct, kw_only=True):
    """Who asks."""

    client_id: ClientId


class DeviceCodes(Struct, kw_only=True):
    """The codes, and where a member enters the short one."""

    device_code: Annotated[str, Meta(description="The device's secret, to poll with.")]
    user_code: Annotated[str, Meta(examples=["WDJB-MJHT"])]
    verification_uri: Annotated[str, Meta(examples=["https://audit.example/device"])]
    expires_in: Annotated[int, Meta(description="Seconds until both codes expire.")]
    interval: Annotated[int, Meta(description="Seconds to wait between two polls.")]


class DeviceTokenRequest(Struct, kw_only=True):
    """A poll for the session."""

    grant_type: Literal["urn:ietf:params:oauth:grant-type:device_code"]
    device_code: Annotated[str, Meta(min_length=1, max_length=CODE_CHARS_MAX)]
    client_id: ClientId


class DeviceToken(Struct, kw_only=True):
    """The session of the member who approved it, to be sent as `Authorization: Bearer`."""

    access_token: str
    token_type: Literal["Bearer"]
    expires_in: Annotated[
        int, Meta(description="Seconds until the session ends at the latest; sooner if not used.")
    ]


CODE_EXAMPLE: Final = {"client_id": CLIENT_ID}
TOKEN_EXAMPLE: Final = {
    "grant_type": GRANT_TYPE,
    "device_code": "pNbV0mMZkd2mXhU5h6c9mA2b2kT9o1o4q7m1w0v8y3E",
    "client_id": CLIENT_ID,
}
