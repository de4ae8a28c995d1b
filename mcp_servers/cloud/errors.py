"""Errors of the cloud tools.

    CloudError
    ├── InvalidQuestionError     the question is empty, too long, or names a model that is not allowed
    ├── AuthenticationError      the vendor rejects the API key
    ├── RateLimitError           the vendor is overloaded or a usage limit is reached
    ├── VendorError              the vendor rejects the request or fails
    ├── ContentFilteredError     the vendor declines to answer this question
    ├── ConnectionFailedError    no connection, or no answer in time
    └── InvalidReplyError        the vendor's reply is not an answer

A small model reads these messages and passes them on, so each one is in Japanese and English and ends with the next
step for the user. Messages never contain an API key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mcp_servers.errors import BilingualError


class CloudError(BilingualError):
    """Base of the errors that a tool returns instead of an answer."""

    @property
    def quoted_detail(self) -> str:
        """The vendor's own message in parentheses, or an empty string."""
        detail = getattr(self, "detail", "")
        return f" ({detail})" if detail else ""


@dataclass(eq=False)
class InvalidQuestionError(CloudError):
    """A question that is not sent."""

    reason: str  # in English, with the remedy
    reason_japanese: str  # the same in Japanese

    _JAPANESE: ClassVar[str] = "{e.reason_japanese}"
    _ENGLISH: ClassVar[str] = "{e.reason}"


@dataclass(eq=False)
class AuthenticationError(CloudError):
    """The vendor rejects the API key."""

    vendor: str  # display name
    variable: str  # environment variable of the key
    detail: str  # the vendor's own message
    _JAPANESE: ClassVar[str] = "{e.vendor}がAPIキーを受け付けません。{e.variable}を確認してください。"
    _ENGLISH: ClassVar[str] = "{e.vendor} rejects the API key{e.quoted_detail}. Check {e.variable}."


@dataclass(eq=False)
class RateLimitError(CloudError):
    """The vendor is overloaded or a usage limit is reached."""

    vendor: str  # display name
    detail: str  # the vendor's own message
    wait_s: float | None = None  # delay requested by the vendor; None when it named none

    @property
    def japanese(self) -> str:
        """The message in Japanese."""
        wait = "しばらくして" if self.wait_s is None else f"{self.wait_s:g}秒後に"
        return f"{self.vendor}は混み合っているか、利用上限に達しています。{wait}もう一度試してください。"

    @property
    def english(self) -> str:
        """The message in English."""
        wait = "later" if self.wait_s is None else f"in {self.wait_s:g} s"
        return f"{self.vendor} is busy or its limit is reached{self.quoted_detail}. Try again {wait}."


@dataclass(eq=False)
class VendorError(CloudError):
    """The vendor rejects the request or fails."""

    vendor: str  # display name
    status: int  # HTTP status
    detail: str  # the vendor's own message
    remedy: str  # next step for the user, in English
    remedy_japanese: str  # the same in Japanese
    _JAPANESE: ClassVar[str] = "{e.vendor}がエラーを返しました(HTTP {e.status})。{e.remedy_japanese}"
    _ENGLISH: ClassVar[str] = "{e.vendor} answered with HTTP {e.status}{e.quoted_detail}. {e.remedy}"


@dataclass(eq=False)
class ContentFilteredError(CloudError):
    """The vendor declines to answer this question."""

    vendor: str  # display name
    reason: str  # the vendor's reason
    _JAPANESE: ClassVar[str] = "{e.vendor}はこの質問に回答しませんでした。言い方を変えて試してください。"
    _ENGLISH: ClassVar[str] = "{e.vendor} declined to answer this question ({e.reason}). Rephrase the question."


@dataclass(eq=False)
class ConnectionFailedError(CloudError):
    """No connection, or no answer in time."""

    host: str  # contacted host
    reason: str  # technical cause
    _JAPANESE: ClassVar[str] = "{e.host}に接続できないか、応答がありません。ネットワーク接続を確認してください。"
    _ENGLISH: ClassVar[str] = "{e.host} cannot be reached ({e.reason}). Check the network connection and try again."


@dataclass(eq=False)
class InvalidReplyError(CloudError):
    """The vendor's reply is not an answer."""

    host: str  # contacted host
    reason: str  # defect of the reply
    _JAPANESE: ClassVar[str] = "{e.host}の応答を読み取れませんでした。接続先のアドレスを確認してください。"
    _ENGLISH: ClassVar[str] = "The answer of {e.host} cannot be read ({e.reason}). Check the configured address."
