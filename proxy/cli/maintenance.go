package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
)

// keysBans lists the bans of networks.
type keysBans struct{ answerFlags }

// Run prints the bans.
func (k keysBans) Run(ctx context.Context, w Env) error {
	all, err := admin.Get[admin.Bans](ctx, k.client(), "/bans")
	if err != nil || k.JSON {
		return printJSON(w, all, err)
	}
	return directiveTable(all.Networks, "no network is banned; weir keys get shows the bans of a key").printAll(w.Stdout)
}

// maintenanceCommand shows or changes what is under maintenance.
type maintenanceCommand struct {
	State  string `arg:"" optional:"" enum:"on,off,show" default:"show" help:"on, off, or nothing to show what is on."`
	Route  string `arg:"" optional:"" help:"The route; all routes if it is left out."`
	For    string `help:"Duration: 15m, 1h; until it is ended if it is left out." placeholder:"DURATION"`
	Reason string `help:"Reason, for the audit trail." placeholder:"TEXT"`
	answerFlags
}

// Run prints what is under maintenance, after a change if one is asked for.
func (c maintenanceCommand) Run(ctx context.Context, w Env) (err error) {
	m := admin.MaintenanceChange{On: c.State == "on", Route: c.Route, Reason: c.Reason}
	switch {
	case c.For != "" && !m.On:
		return misusef("--for says how long maintenance lasts that begins; write weir maintenance on --for %s", c.For)
	case c.Reason != "" && c.State == "show":
		return misusef("--reason is that of a change; write weir maintenance on or off")
	case c.For != "":
		if m.For, err = parseFor(c.For, "1h"); err != nil {
			return err
		}
	}
	var now admin.Maintenance
	if c.State == "show" {
		now, err = admin.Get[admin.Maintenance](ctx, c.client(), "/maintenance")
	} else {
		now, err = admin.Post[admin.Maintenance](ctx, c.client(), "/maintenance", m)
	}
	switch {
	case err != nil || c.JSON:
		return printJSON(w, now, err)
	case len(now.Behind) > 0:
		fmt.Fprintln(w.Stdout, "this holds "+now.Where())
	case !now.Everywhere:
		fmt.Fprintln(w.Stdout, "redis is unreachable: this holds "+now.Where())
	}
	return directiveTable(now.On, "no route is under maintenance").printAll(w.Stdout)
}

// directiveTable returns directives as a table, and what is to be said if there are none.
func directiveTable(all []directive.Directive, empty string) textTable {
	t := textTable{columns: []string{"WHAT", "ROUTE", "ENDS IN", "SINCE", "BY", "REASON"}, empty: empty}
	for _, d := range all {
		what := "maintenance"
		if d.Network.IsValid() {
			what = d.Network.String()
		}
		t.add(textRow{}, what, cmp.Or(d.Route, "all"), endsIn(d, time.Now()), d.At.UTC().Format(time.RFC3339), printable(d.Who),
			printable(cmp.Or(d.Reason, "-")))
	}
	return t
}

// endsIn returns the time that d lasts.
func endsIn(d directive.Directive, now time.Time) string {
	if d.Open() {
		return "until off"
	}
	return max(d.Until.Sub(now).Round(time.Second), time.Second).String()
}

// networkResult writes the result of a ban or unban of a network.
func (k *keysText) networkResult(r view.KeyResult) {
	done, where := "unbanned", r.Where()
	if r.Action == view.KeyBan {
		done = "banned for " + r.For.String()
	}
	if !r.Everywhere {
		where = k.bad(where)
	}
	k.printf("%s network %s on %s, %s\n", done, r.Network, cmp.Or(r.Route, "all routes"), where)
}
