package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// A textTable is a table; the most important columns come first.
type textTable struct {
	columns []string
	rows    []textRow
	empty   string // shown if there are no rows
}

// A textRow is one line of a table.
type textRow struct {
	id    string // identifies the row when the order changes
	cells []string
	bad   bool      // needs attention
	key   *keyOfRow // nil if the row is not about a key
}

// A keyOfRow is a key that can be looked up and changed.
type keyOfRow struct{ name, id, masked string }

// add adds a row with these cells.
func (t *textTable) add(row textRow, cells ...any) {
	for _, cell := range cells {
		row.cells = append(row.cells, fmt.Sprint(cell))
	}
	t.rows = append(t.rows, row)
}

// print writes the first rows as text, each after indent.
func (t textTable) print(out io.Writer, indent string, rows int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s%s\n", indent, strings.Join(t.columns, "\t"))
	for _, row := range t.rows[:min(len(t.rows), rows)] {
		fmt.Fprintf(w, "%s%s\n", indent, strings.Join(row.cells, "\t"))
	}
	return w.Flush()
}

// printable replaces control characters in text.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, text)
}

// ago returns the time since at.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return max(now.Sub(at), 0).Round(time.Second).String()
}
