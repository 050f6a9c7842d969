//! Columns of text that line up on a terminal, where some characters take two columns or none.

use unicode_width::UnicodeWidthStr;

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Rows of cells. A cell is plain text: colours are added after the layout.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(columns: &[Align]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells beyond the last column are dropped.
    pub fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        let row = cells.into_iter().take(self.columns.len()).collect();
        self.rows.push(row);
    }

    /// The lines, with two spaces between columns and none at the end.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        self.rows
            .iter()
            .map(|row| self.line(row, &widths))
            .collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at].saturating_sub(cell.width()));
            let gap = if at == 0 { "" } else { "  " };
            line.push_str(gap);
            match self.columns[at] {
                Align::Left => line.extend([cell.as_str(), &pad]),
                Align::Right => line.extend([pad.as_str(), cell]),
            }
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_blanks_at_the_end() {
        let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
        table.row(["é".into(), "7".into(), "x".into()]);
        table.row(["long".into(), "120".into(), String::new(), "beyond".into()]);
        assert_eq!(table.lines(), ["é       7  x", "long  120"]);
        table.row(["日本語".into(), "1".into(), "y".into()]);
        assert_eq!(table.lines()[0], "é         7  x");
        assert_eq!(table.lines()[2], "日本語    1  y");
    }
}
