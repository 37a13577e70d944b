"""What both of OpenAI's formats do with parts alike, on the way out and on the way in."""

from __future__ import annotations

from collections.abc import Sequence

from arbiter.model import CacheMark, File, Image, Opaque, Part, Text
from arbiter.wire.inline import data_url, text_in


def sayable(parts: Sequence[Part], format: str) -> list[Part]:
    """Return the parts with text in place of what can be said as text, and without those that say nothing.

    OpenAI takes PDFs as files, and few other servers take any: what is text leaves as text.
    """
    said: list[Part] = []
    for part in parts:
        if type(part) is Opaque and part.format != format and part.text is not None:
            part = Text(part.text)
        elif type(part) is File and part.text is not None:
            part = Text(f"{part.filename}:\n\n{part.text}" if part.filename else part.text)
        if not (type(part) is Text and not part.text):
            said.append(part)
    return said


def joined(texts: tuple[Text, ...]) -> str:
    """Return several texts as one, with blank lines between them."""
    return "\n\n".join(part.text for part in texts)


def bare(content: str | Sequence[Part], format: str) -> str | list[Part]:
    """Return content as the one string that it is, where all of it is text (SPEC 2.4), else as what can be said."""
    if isinstance(content, str):
        return content
    if len(content) == 1 and type(content[0]) is Text:
        return content[0].text
    parts = sayable(content, format)
    texts = tuple(part for part in parts if type(part) is Text)
    return joined(texts) if len(texts) == len(parts) else parts


def image_of(url: str, detail: str | None, cache: CacheMark | None) -> Image:
    """Return the picture behind a URL, which may hold it."""
    inline = data_url(url)
    if inline is not None:
        return Image(media_type=inline[0], data=inline[1], detail=detail, cache=cache)
    return Image(url=url, detail=detail, cache=cache)


def image_url(image: Image) -> str:
    return image.url or f"data:{image.media_type};base64,{image.data}"


def file_of(data: str, filename: str | None, cache: CacheMark | None) -> File:
    """Return the file that `file_data` is: a `data:` URL, another URL, or bare base64."""
    if data.startswith(("http://", "https://")):
        return File(url=data, filename=filename, cache=cache)
    inline = data_url(data)
    if inline is None:
        return File(data=data, filename=filename, cache=cache)
    media_type, data = inline
    if media_type == "text/plain":
        text = text_in(data)
        if text is not None:
            return File(media_type="text/plain", text=text, filename=filename, cache=cache)
    return File(media_type=media_type, data=data, filename=filename, cache=cache)


def file_name(file: File) -> str:
    """Return a file's name. OpenAI refuses data without one."""
    return file.filename or ("document.pdf" if file.media_type in (None, "application/pdf") else "document")


def file_data(file: File) -> str:
    data = file.data or ""
    return f"data:{file.media_type};base64,{data}" if file.media_type else data
