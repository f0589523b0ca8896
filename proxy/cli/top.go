package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/decisions"
)

// topCommand shows live statistics of all nodes: the keys with most requests
// and most refusals.
type topCommand struct {
	adminFlags
	Route   string        `help:"Only keys of limits of this route." placeholder:"NAME" names:"routes"`
	Limit   string        `help:"Only keys of limits of this name." placeholder:"NAME" names:"limits"`
	Minutes int           `default:"15" help:"Count keys over the last N minutes, 1 to 15." placeholder:"N"`
	Every   time.Duration `default:"2s" help:"Refresh interval." placeholder:"DURATION"`
	Rows    int           `short:"n" default:"20" help:"Show at most N keys of each limit, and with --once at most N rows of each table; 1 to 1000." placeholder:"N"`
	Once    bool          `help:"Print once as plain text, and exit." xor:"form"`
	JSON    bool          `name:"json" help:"Print once as JSON, and exit." xor:"form"`
}

const (
	// minInterval is the shortest allowed refresh interval.
	minInterval = 200 * time.Millisecond
	// maxRows is the maximum number of keys of a limit that a node returns.
	maxRows = 1000
)

// Run shows the statistics until the operator quits.
func (c topCommand) Run(ctx context.Context, w Env) error {
	switch {
	case c.Minutes < 1 || c.Minutes > decisions.TopSlices:
		return fmt.Errorf("--minutes %d: keys are counted over the last %d minutes; write 1 to %d", c.Minutes, decisions.TopSlices, decisions.TopSlices)
	case c.Every < minInterval:
		return fmt.Errorf("--every %v: too often; write %v or more", c.Every, minInterval)
	case c.Rows < 1 || c.Rows > maxRows:
		return fmt.Errorf("-n %d: write 1 to %d", c.Rows, maxRows)
	}
	source := topSource{client: c.client(), route: c.Route, limit: c.Limit, minutes: c.Minutes, keys: c.Rows}
	if c.Once || c.JSON {
		data, err := source.fetch(ctx)
		switch {
		case err != nil:
			return reportRefusal(w.Stdout, err)
		case c.JSON:
			return printJSON(w, data)
		}
		return printTop(w.Stdout, data, c.Rows)
	}
	if w.Stdin != nil || !isTerminal(os.Stdin) || !isTerminal(w.Stdout) || os.Getenv("TERM") == "dumb" {
		return errNoTerminal
	}
	return showTop(ctx, source, c.Every)
}

// errNoTerminal reports that standard output is not a usable terminal.
var errNoTerminal = errors.New("top needs a terminal with cursor addressing; weir top --once prints once without one")

// printTop writes all pages, one after the other, with at most so many rows each.
func printTop(out io.Writer, d topData, rows int) error {
	var err error
	printf := func(format string, values ...any) {
		if _, failed := fmt.Fprintf(out, format, values...); err == nil {
			err = failed
		}
	}
	printf("%s; keys of the last %d minutes, as of %s\n", d.summary(), d.Minutes, d.At.UTC().Format(time.RFC3339))
	for page := range pageCount {
		table := d.table(page, byRefused)
		printf("\n%s\n", strings.ToUpper(page.title()))
		if len(table.rows) == 0 {
			printf("  %s\n", table.empty)
			continue
		}
		if failed := table.print(out, "  ", rows); err == nil {
			err = failed
		}
		if more := len(table.rows) - rows; more > 0 {
			printf("  and %s; -n prints more\n", plural(more, "other row"))
		}
	}
	return err
}
