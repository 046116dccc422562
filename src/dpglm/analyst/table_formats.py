"""A table of texts as HTML, LaTeX, Markdown, CSV, JSON, plain text, and a Word document.

Labels and levels come from a schema that a stranger may have written: in each format every character of theirs stays a
character. Nothing here needs a further package.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape as xml_escape

from dpglm.notebook import table_html
from dpglm.terminal import aligned

if TYPE_CHECKING:
    from dpglm.analyst.table import Table

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "[": "{[}", "]": "{]}", "*": "{*}", "-": "{-}", "`": "{`}", "'": "{'}",
    "−": "$-$", "×": r"$\times$", "ε": r"$\varepsilon$", "δ": r"$\delta$", "–": "--",
}  # fmt: skip
# In Markdown a backslash takes the meaning of punctuation, but not in every program that of < & $ ~.
_MARKDOWN = {character: "\\" + character for character in "\\`*_[]{}|#"} | {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "~": "&#126;", "@": "&#64;",
}  # fmt: skip
_STARTS_A_BLOCK = re.compile(r"^(\d*)([-+=.)])")  # a list, or a line under a heading
_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'", "|", "%")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a file in an archive: the same table gives the same bytes


def html_text(table: Table) -> str:
    """A table element; numbers to the right."""
    return table_html(table.caption, table.head, table.rows, table.notes)


def latex_text(table: Table) -> str:
    """A table environment."""
    lines = [" & ".join(map(_latex, row)) + r" \\" for row in (table.head, *table.rows)]
    width = len(table.head)
    notes = [rf"\multicolumn{{{width}}}{{p{{\linewidth}}}}{{\footnotesize {_latex(note)}}} \\" for note in table.notes]
    return "\n".join(
        [
            r"\begin{table}", r"\centering", rf"\caption{{{_latex(table.caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}", r"\hline", lines[0], r"\hline", *lines[1:], r"\hline",
            *notes, r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


def markdown_text(table: Table) -> str:
    """A pipe table, its caption above and its notes below."""
    rows = [f"| {' | '.join(map(_markdown, row))} |" for row in (table.head, *table.rows)]
    rows.insert(1, "|" + "|".join([":---", *["---:"] * (len(table.head) - 1)]) + "|")
    notes = "  \n".join(map(_paragraph_start, table.notes))
    return "\n".join([_paragraph_start(table.caption), "", *rows, "", notes, ""])


def csv_text(table: Table) -> str:
    """The records; a cell is empty where a record has no such number."""
    names = list(dict.fromkeys(name for record in table.records for name in record))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    for record in table.records:
        writer.writerow([_csv_cell(record.get(name)) for name in names])
    return buffer.getvalue()


def json_text(table: Table) -> str:
    """As one object."""
    return json.dumps({"caption": table.caption, "rows": [dict(each) for each in table.records], "notes": table.notes})


def plain_text(table: Table) -> str:
    """Aligned columns."""
    return "\n".join([table.caption, "", aligned(table.head, table.rows), "", *table.notes])


def docx_bytes(table: Table) -> bytes:
    """The least Word document that holds a table: three parts in an archive."""
    parts = {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument'
        '.wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": _document(table),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), text)
    return buffer.getvalue()


def _document(table: Table) -> str:
    edges = "".join(f'<w:{edge} w:val="single" w:sz="6" w:color="888888"/>' for edge in ("top", "bottom", "insideH"))
    grid = "<w:gridCol/>" * len(table.head)
    rows = "".join(
        f"<w:tr>{'<w:trPr><w:tblHeader/></w:trPr>' if first else ''}"
        + "".join(
            f'<w:tc><w:tcPr><w:tcW w:w="0" w:type="auto"/></w:tcPr>'
            f"{_paragraph(cell, right=place > 0, bold=first)}</w:tc>"
            for place, cell in enumerate(row)
        )
        + "</w:tr>"
        for row, first in ((table.head, True), *((row, False) for row in table.rows))
    )
    body = (
        f"{_paragraph(table.caption, bold=True)}<w:tbl><w:tblPr>"
        f'<w:tblW w:w="0" w:type="auto"/><w:tblBorders>{edges}</w:tblBorders></w:tblPr><w:tblGrid>{grid}</w:tblGrid>'
        f"{rows}</w:tbl>{''.join(_paragraph(note, small=True) for note in table.notes)}"
    )
    return f'{_XML}<w:document xmlns:w="{_WORD}"><w:body>{body}<w:sectPr/></w:body></w:document>'


def _paragraph(text: str, *, right: bool = False, bold: bool = False, small: bool = False) -> str:
    place = '<w:pPr><w:jc w:val="right"/></w:pPr>' if right else ""
    style = ("<w:b/>" if bold else "") + ('<w:sz w:val="18"/>' if small else "")
    held = xml_escape(_NOT_XML.sub("\ufffd", text))
    return f'<w:p>{place}<w:r><w:rPr>{style}</w:rPr><w:t xml:space="preserve">{held}</w:t></w:r></w:p>'


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown(text: str) -> str:
    held = "".join(_MARKDOWN.get(character, character) for character in text) or " "
    return held.replace("://", "&#58;//").replace("www.", "www&#46;")  # no links of their own


def _paragraph_start(text: str) -> str:
    """As ``_markdown``, and whatever it begins with, it is a paragraph."""
    return _STARTS_A_BLOCK.sub(r"\1\\\2", _markdown(text.strip()))


def _csv_cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_STARTS_A_FORMULA) else value
    return "" if value is None else value
