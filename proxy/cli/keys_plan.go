package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// keysPlan assigns a plan to a key, or ends that.
type keysPlan struct {
	adminFlags
	reasonFlag
	Args  []string `arg:"" name:"key=value" names:"keys" help:"The key, as for get, and then the name of the plan: user=alice pro."`
	For   string   `required:"" xor:"end" help:"Duration: 7d, 30d." placeholder:"DURATION"`
	Clear bool     `required:"" xor:"end" help:"End the assignment; give no plan."`
	Route string   `help:"Only on this route." placeholder:"NAME" names:"routes"`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Run assigns the plan, or ends the assignment.
func (k keysPlan) Run(ctx context.Context, w Env) error {
	key := keyArgs{adminFlags: k.adminFlags, Pairs: k.Args, Route: k.Route, JSON: k.JSON}
	if k.Clear {
		return key.change(ctx, w, proxy.KeyChange{Action: proxy.KeyUnassign, Reason: k.Reason})
	}
	last := len(k.Args) - 1
	name := k.Args[last]
	if last == 0 || strings.Contains(name, "=") {
		return fmt.Errorf("no plan is named; write KEY=VALUE and then its name, for example user=alice pro")
	}
	key.Pairs = k.Args[:last]
	span, err := parseFor(k.For, "30d")
	if err != nil {
		return err
	}
	return key.change(ctx, w, proxy.KeyChange{Action: proxy.KeyAssign, Plan: name, For: span, Reason: k.Reason})
}

// keysPlans lists the plans that are assigned to keys.
type keysPlans struct {
	adminFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// Run prints the plans.
func (k keysPlans) Run(ctx context.Context, w Env) error {
	all, err := k.client().Plans(ctx)
	switch {
	case err != nil || k.JSON:
		return printJSON(w, all, err)
	case len(all.Keys) == 0:
		_, err = fmt.Fprintln(w.Stdout, "no plan is assigned to a key; weir keys plan user=alice pro --for 30d assigns one")
		return err
	}
	t := textTable{columns: []string{"KEY", "PLAN", "ROUTE", "ENDS IN", "SINCE", "BY", "REASON", "ID"}}
	for _, p := range all.Keys {
		t.add(textRow{}, printable(p.Key.Masked), p.Plan, cmp.Or(p.Route, "all"), endsIn(p.Directive, time.Now()),
			p.At.UTC().Format(time.RFC3339), printable(p.Who), printable(cmp.Or(p.Reason, "-")), p.ID)
	}
	return t.print(w.Stdout, "", len(all.Keys))
}
