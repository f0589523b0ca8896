package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// topCommand shows what all nodes see, and whom they refuse, as it changes.
type topCommand struct {
	adminFlags
	Route   string        `help:"Only keys of limits of this route." placeholder:"NAME"`
	Limit   string        `help:"Only keys of limits of this name." placeholder:"NAME"`
	Minutes int           `default:"15" help:"Count keys over the last so many minutes: 1 to 15." placeholder:"N"`
	Every   time.Duration `default:"2s" help:"How often to look again." placeholder:"DURATION"`
	Once    bool          `help:"Print it once, as plain text, and end."`
}

// minInterval is how often a running weir may be asked at most.
const minInterval = 200 * time.Millisecond

// Run shows it until the operator ends that.
func (c topCommand) Run(ctx context.Context, w Env) error {
	switch {
	case c.Minutes < 1 || c.Minutes > proxy.TopSlices:
		return fmt.Errorf("--minutes %d: keys are counted over the last %d minutes; write 1 to %d", c.Minutes, proxy.TopSlices, proxy.TopSlices)
	case c.Every < minInterval:
		return fmt.Errorf("--every %v: too often; write %v or more", c.Every, minInterval)
	}
	source := topSource{client: c.client(), route: c.Route, limit: c.Limit, minutes: c.Minutes}
	if c.Once {
		data, err := source.fetch(ctx)
		if err != nil {
			return reportRefusal(w.Stdout, err)
		}
		return printTop(w.Stdout, data)
	}
	if w.Stdin != nil || !isTerminal(os.Stdin) || !isTerminal(w.Stdout) || os.Getenv("TERM") == "dumb" {
		return errNoTerminal
	}
	return showTop(ctx, source, c.Every)
}

// errNoTerminal says that there is nothing to show top on.
var errNoTerminal = errors.New("top needs a terminal that shows text anywhere on it; weir top --once prints the same once")
