//! Plain tables for a terminal.

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Left-aligned: text.
    Left,
    /// Right-aligned: figures.
    Right,
}

/// Lays out `rows` below the `head`, with two spaces between columns.
pub(crate) fn format(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, (title, _))| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(title.chars().count())
        })
        .collect();
    let mut text = String::new();
    let titles: Vec<String> = head.iter().map(|(title, _)| (*title).to_owned()).collect();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, (_, align)), width) in row.iter().zip(head).zip(&widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Formats a number of bytes with a decimal unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut tenths = u128::from(count) * 10 / 1000;
    let mut unit = "kB";
    for next in UNITS.into_iter().skip(1) {
        if tenths < 10_000 {
            break;
        }
        tenths /= 1000;
        unit = next;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["web".to_owned(), "7".to_owned()],
            vec!["database".to_owned(), "1234".to_owned()],
        ];
        let head = [("VM", Align::Left), ("FRAMES", Align::Right)];
        let expected = "VM        FRAMES\nweb            7\ndatabase    1234\n";
        assert_eq!(format(&head, &rows), expected);
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.0 kB");
        assert_eq!(bytes(1_234_567), "1.2 MB");
        assert_eq!(bytes(999_999_999), "999.9 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
    }
}
