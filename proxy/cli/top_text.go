package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// printTop writes all pages, one after the other.
func printTop(out io.Writer, d topData) error {
	var err error
	printf := func(format string, values ...any) {
		if _, failed := fmt.Fprintf(out, format, values...); err == nil {
			err = failed
		}
	}
	printf("%s; keys of the last %d minutes, as of %s\n", d.summary(), d.minutes, d.at.UTC().Format(time.RFC3339))
	for page := range pageCount {
		table := d.table(page, byRefused)
		printf("\n%s\n", strings.ToUpper(page.title()))
		if len(table.rows) == 0 {
			printf("  %s\n", table.empty)
			continue
		}
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "  %s\n", strings.Join(table.columns, "\t"))
		for _, row := range table.rows {
			fmt.Fprintf(t, "  %s\n", strings.Join(row.cells, "\t"))
		}
		if failed := t.Flush(); err == nil {
			err = failed
		}
	}
	return err
}
