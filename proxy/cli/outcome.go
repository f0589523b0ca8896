package cli

import (
	"context"
	"fmt"

	"github.com/weir-proxy/weir/proxy"
)

// outcomeCommand tells a running weir what became of earlier requests, where their application's answer does
// not pass through it.
type outcomeCommand struct {
	adminFlags
	Pair    string `arg:"" name:"key=value" help:"The key that return_on names, and its value as in a request: phone=+8613800138000."`
	Outcome string `arg:"" name:"outcome" help:"verified: the permits of all requests for this value are returned."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

// Run reports the outcome, and prints what was returned.
func (o outcomeCommand) Run(ctx context.Context, w Env) error {
	pair, err := proxy.ParseKeyPair(o.Pair)
	if err != nil {
		return withoutPrefix(err, proxy.ErrKeyQuery)
	}
	r, err := o.client().Outcome(ctx, proxy.Outcome{Key: pair.Key, Value: pair.Value, Outcome: o.Outcome})
	if err != nil || o.JSON {
		return printJSON(w, r, err)
	}
	for _, l := range r.Returned {
		if _, err := fmt.Fprintf(w.Stdout, "%s: returned the permits of %s\n", proxy.LimitName(l.Route, l.Limit), plural(l.Requests, "request")); err != nil {
			return err
		}
	}
	return nil
}
