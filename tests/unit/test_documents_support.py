"""What the tests of documents share: DOCX files made of their XML."""

from __future__ import annotations

import io
from zipfile import ZIP_DEFLATED, ZipFile

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"

STYLES = f"""<w:styles xmlns:w="{_WORD}">
<w:style w:type="paragraph" w:styleId="Titre1"><w:name w:val="heading 1"/></w:style>
<w:style w:type="paragraph" w:styleId="Titre2"><w:name w:val="heading 2"/></w:style>
<w:style w:type="paragraph" w:styleId="Titre"><w:name w:val="Title"/></w:style></w:styles>"""
NUMBERING = f"""<w:numbering xmlns:w="{_WORD}"><w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/></w:lvl><w:lvl w:ilvl="1"><w:numFmt w:val="bullet"/></w:lvl>
</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>"""


def paragraph(text: str, style: str = "", *, bullet: int | None = None) -> str:
    """A paragraph; `style` is the id of one in STYLES, `bullet` the level of a list entry."""
    listed = f'<w:numPr><w:ilvl w:val="{bullet}"/><w:numId w:val="1"/></w:numPr>' if bullet is not None else ""
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{listed}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'


def table(*rows: list[str]) -> str:
    """A table of paragraphs."""
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def docx(body: str = "", *, title: str = "", **parts: str | bytes) -> bytes:
    """A DOCX of this body; `parts` replace or add parts, `__` in their names stands for `/`, `_xml` for `.xml`."""
    known: dict[str, str | bytes] = {
        "[Content_Types].xml": content_types(),
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="s" Type="{_OFFICE}/styles" Target="styles.xml"/>'
        f'<Relationship Id="n" Type="{_OFFICE}/numbering" Target="numbering.xml"/>'
        f'<Relationship Id="i" Type="{_OFFICE}/image" Target="media/picture.png"/></Relationships>',
        "word/styles.xml": STYLES,
        "word/numbering.xml": NUMBERING,
        "word/media/picture.png": b"\x89PNG",
        "word/document.xml": document(body),
        "docProps/core.xml": f'<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></cp:coreProperties>',
    }
    return zipped(known | {name.replace("__", "/").replace("_xml", ".xml"): part for name, part in parts.items()})


def document(body: str) -> str:
    """The main part, with the namespaces that pictures need."""
    return (
        f'<w:document xmlns:w="{_WORD}" xmlns:r="{_OFFICE}" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/'
        'main" xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
        'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture">'
        f"<w:body>{body}</w:body></w:document>"
    )


def content_types() -> str:
    return (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="png" ContentType="image/png"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_TYPE}.document.main+xml"/></Types>'
    )


def zipped(parts: dict[str, str | bytes]) -> bytes:
    """A zip of these files, compressed."""
    target = io.BytesIO()
    with ZipFile(target, "w", ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return target.getvalue()
