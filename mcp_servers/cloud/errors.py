"""What can go wrong when a large model is asked.

    CloudError
    ├── QuestionRefusedError    the question is empty, too long, or names a model that may not be asked
    ├── KeyRefusedError         the vendor does not take the key
    ├── BusyError               the vendor's limit is reached
    ├── VendorRefusedError      the vendor refuses the request or fails
    ├── AnswerWithheldError     the vendor does not answer this question
    ├── UnreachableError        there is no connection, or no answer in time
    └── UnreadableError         the vendor answered with something that is no answer

A small model reads these sentences and passes them on, so each is said in Japanese and in English and ends with what
can be done. No key is ever in one.
"""

from __future__ import annotations

from dataclasses import dataclass


class CloudError(Exception):
    """Anything that a tool of this server answers instead of an answer."""

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return ""

    @property
    def english(self) -> str:
        """The sentence in English."""
        return ""

    def __str__(self) -> str:
        """Both sentences, for a reader whose language is not known."""
        return f"{self.japanese} / {self.english}"


@dataclass(eq=False)
class QuestionRefusedError(CloudError):
    """A question that is not sent.

    Args:
        reason: why, in English, with what to do.
        reason_japanese: the same in Japanese.
    """

    reason: str
    reason_japanese: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return self.reason_japanese

    @property
    def english(self) -> str:
        """The sentence in English."""
        return self.reason


@dataclass(eq=False)
class KeyRefusedError(CloudError):
    """The vendor does not take the key.

    Args:
        vendor: its name.
        variable: where the key comes from.
        said: the vendor's words.
    """

    vendor: str
    variable: str
    said: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return f"{self.vendor}がAPIキーを受け付けません。{self.variable}を確認してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"{self.vendor} refuses the key{_quoted(self.said)}. Check {self.variable}."


@dataclass(eq=False)
class BusyError(CloudError):
    """The vendor's limit is reached, or it is overloaded.

    Args:
        vendor: its name.
        said: the vendor's words.
        wait_s: when it wants to be asked again; None when it did not say.
    """

    vendor: str
    said: str
    wait_s: float | None = None

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        wait = "しばらくして" if self.wait_s is None else f"{self.wait_s:g}秒後に"
        return f"{self.vendor}は混み合っているか、利用上限に達しています。{wait}もう一度試してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        wait = "later" if self.wait_s is None else f"in {self.wait_s:g} s"
        return f"{self.vendor} is busy or its limit is reached{_quoted(self.said)}. Try again {wait}."


@dataclass(eq=False)
class VendorRefusedError(CloudError):
    """The vendor refuses the request, or fails.

    Args:
        vendor: its name.
        status: the HTTP status.
        said: the vendor's words.
        remedy: what to do, in English.
        remedy_japanese: the same in Japanese.
    """

    vendor: str
    status: int
    said: str
    remedy: str
    remedy_japanese: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return f"{self.vendor}がエラーを返しました(HTTP {self.status})。{self.remedy_japanese}"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"{self.vendor} answered with HTTP {self.status}{_quoted(self.said)}. {self.remedy}"


@dataclass(eq=False)
class AnswerWithheldError(CloudError):
    """The vendor does not answer this question.

    Args:
        vendor: its name.
        reason: its word for why.
    """

    vendor: str
    reason: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return f"{self.vendor}はこの質問に回答しませんでした。言い方を変えて試してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"{self.vendor} does not answer this question ({self.reason}). Ask in other words."


@dataclass(eq=False)
class UnreachableError(CloudError):
    """No connection, or no answer in time.

    Args:
        host: where it was asked.
        reason: what happened, for the person who mends it.
    """

    host: str
    reason: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return f"{self.host}に接続できないか、応答がありません。ネットワーク接続を確認してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"{self.host} cannot be reached ({self.reason}). Check the network connection and try again."


@dataclass(eq=False)
class UnreadableError(CloudError):
    """The vendor answered with something that is no answer.

    Args:
        host: where it was asked.
        reason: what is wrong with it.
    """

    host: str
    reason: str

    @property
    def japanese(self) -> str:
        """The sentence in Japanese."""
        return f"{self.host}の応答を読み取れませんでした。接続先のアドレスを確認してください。"

    @property
    def english(self) -> str:
        """The sentence in English."""
        return f"The answer of {self.host} cannot be read ({self.reason}). Check the address it was asked at."


def _quoted(said: str) -> str:
    return f" ({said})" if said else ""
