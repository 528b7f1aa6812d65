"""Tables on the terminal."""

from rich import box
from rich.table import Table as Drawn
from rich.text import Text

from bsfl.analysis.tables import Table


def drawn(table: Table) -> Drawn:
    """Return a table with its title above and its note below; no text in it is markup."""
    shown = Drawn(
        title=Text(table.title),
        caption=Text(table.note),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for i, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="right" if i else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell.replace(" ", "\N{NO-BREAK SPACE}")) for cell in row))
    return shown
