"""A refusal: what a request is answered with when it is not done, in the shape OpenAI's clients read."""

from __future__ import annotations

from starlette.responses import JSONResponse


class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """A request ends with this status and message; `param` names the field that is at fault, if one is."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        allow: str | None = None,
    ) -> None:
        """Say why, and what would be right."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.allow = allow

    @property
    def body(self) -> dict[str, object]:
        """The object under `error`."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def response(self) -> JSONResponse:
        """The reply."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.allow is not None:
            headers["Allow"] = self.allow
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse({"error": self.body}, self.status, headers)


def stopping() -> Refusal:
    """The server is on its way down."""
    return Refusal(503, "the server is stopping; ask again in a while", code="stopping", retry_after=5)


def engine_down() -> Refusal:
    """The engine's thread has died."""
    return Refusal(
        503, "the engine has failed and serves nothing more; the server must be restarted", code="engine_down"
    )
