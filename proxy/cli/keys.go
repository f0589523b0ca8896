package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
)

// keysCommand shows and changes the state of a key on all nodes.
type keysCommand struct {
	Get   keysGet    `cmd:"" help:"Show the state of a key under each limit."`
	Reset changeArgs `cmd:"" help:"Reset the counts of a key, and end its bans."`
	Grant keysGrant  `cmd:"" help:"Grant a key additional permits."`
	Ban   keysBan    `cmd:"" help:"Ban a key for some time."`
	Unban changeArgs `cmd:"" help:"End the bans of a key; its counts stay."`
	Plan  keysPlan   `cmd:"" help:"Assign a plan to a key for some time."`
	Plans keysPlans  `cmd:"" help:"List the plans that are assigned to keys."`
	Bans  keysBans   `cmd:"" help:"List the networks that are banned."`
}

// keyArgs are the arguments that select a key.
type keyArgs struct {
	Pairs []string `arg:"" name:"key=value" names:"keys" help:"The name of the key in the configuration, and a value as in a request: phone=+8613800138000; for a joined key one argument for each part. The value may be id:..., as shown by get and top, or hash:..., as in the log, of a recent request."`
	Route string   `help:"Only limits of this route." placeholder:"NAME" names:"routes"`
	Limit string   `help:"Only limits of this name." placeholder:"NAME" names:"limits"`
	answerFlags
}

// query returns the query for the key.
func (k keyArgs) query() (view.KeyQuery, error) {
	q := view.KeyQuery{Route: k.Route, Limit: k.Limit}
	for _, text := range k.Pairs {
		pair, err := view.ParseKeyPair(text)
		if err != nil {
			return q, misusef("%s: %w", text, misused(err, view.ErrKeyQuery))
		}
		q.Pairs = append(q.Pairs, pair)
	}
	return q, nil
}

// misused returns err as a misuse if it is of that kind, without the words of kind, which do not concern operators.
func misused(err, kind error) error {
	if text, of := strings.CutPrefix(err.Error(), kind.Error()+": "); of {
		return misuse{errors.New(text)}
	}
	return err
}

// change applies c to the key, or looks it up if c has no action, and prints the result.
func (k keyArgs) change(ctx context.Context, w Env, c view.KeyChange) error {
	var err error
	if c.KeyQuery, err = k.query(); err != nil {
		return err
	}
	out := w.Stdout
	if k.JSON {
		out = io.Discard
	}
	text := keysText{Writer: bufio.NewWriter(out), palette: newPalette(w.Stdout)}
	answer, err := text.ask(ctx, k.client(), c)
	if err != nil || k.JSON {
		return printJSON(w, answer, err)
	}
	return text.Flush()
}

type keysGet struct{ keyArgs }

// Run prints the state of the key, without taking permits.
func (k keysGet) Run(ctx context.Context, w Env) error {
	return k.change(ctx, w, view.KeyChange{})
}

// reasonFlag is the flag for the reason of a change.
type reasonFlag struct {
	Reason string `help:"Reason, for the audit trail." placeholder:"TEXT"`
}

// changeArgs are the arguments of a change of a key, and the command for a change that needs no others.
type changeArgs struct {
	reasonFlag
	keyArgs
}

// Run makes the change that the command has the name of.
func (c changeArgs) Run(ctx context.Context, w Env, parsed *kong.Context) error {
	return c.change(ctx, w, view.KeyChange{Action: view.KeyAction(parsed.Selected().Name), Reason: c.Reason})
}

type keysGrant struct {
	Permits int64 `required:"" help:"Number of permits; a key never has more than its limit." placeholder:"N"`
	changeArgs
}

// Run grants permits.
func (k keysGrant) Run(ctx context.Context, w Env) error {
	if k.Permits < 1 {
		return misusef("--permits %d: write a whole number from 1", k.Permits)
	}
	return k.change(ctx, w, view.KeyChange{Action: view.KeyGrant, Permits: k.Permits, Reason: k.Reason})
}

type keysBan struct {
	For string `required:"" help:"Duration: 15m, 1h, 7d." placeholder:"DURATION"`
	changeArgs
}

// Run bans the key.
func (k keysBan) Run(ctx context.Context, w Env) error {
	span, err := parseFor(k.For, "1h")
	if err != nil {
		return err
	}
	return k.change(ctx, w, view.KeyChange{Action: view.KeyBan, For: span, Reason: k.Reason})
}

// parseFor parses the flag --for; the error has an example.
func parseFor(text, example string) (span view.Span, err error) {
	if err = span.UnmarshalText([]byte(text)); err != nil {
		err = misusef("--for %s: %w; write for example %s", text, misused(err, view.ErrKeyQuery), example)
	}
	return span, err
}

// printJSON prints v as JSON. If the request for it failed, it returns that error.
func printJSON(w Env, v any, err error) error {
	if err != nil {
		return err
	}
	out := json.NewEncoder(w.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// keysPlan assigns a plan to a key, or ends that.
type keysPlan struct {
	Args  []string `arg:"" name:"key=value plan" names:"keys" help:"The key, as for get, and then the name of the plan: user=alice pro."`
	For   string   `required:"" xor:"end" help:"Duration: 7d, 30d." placeholder:"DURATION"`
	Clear bool     `required:"" xor:"end" help:"End the assignment; give no plan."`
	Route string   `help:"Only on this route." placeholder:"NAME" names:"routes"`
	reasonFlag
	answerFlags
}

// Run assigns the plan, or ends the assignment.
func (k keysPlan) Run(ctx context.Context, w Env) error {
	key := keyArgs{Pairs: k.Args, Route: k.Route, answerFlags: k.answerFlags}
	if k.Clear {
		return key.change(ctx, w, view.KeyChange{Action: view.KeyUnassign, Reason: k.Reason})
	}
	last := len(k.Args) - 1
	name := k.Args[last]
	if last == 0 || strings.Contains(name, "=") {
		return misusef("no plan is named; write KEY=VALUE and then its name, for example user=alice pro")
	}
	key.Pairs = k.Args[:last]
	span, err := parseFor(k.For, "30d")
	if err != nil {
		return err
	}
	return key.change(ctx, w, view.KeyChange{Action: view.KeyAssign, Plan: name, For: span, Reason: k.Reason})
}

// keysPlans lists the plans that are assigned to keys.
type keysPlans struct{ answerFlags }

// Run prints the plans.
func (k keysPlans) Run(ctx context.Context, w Env) error {
	all, err := admin.Get[admin.Plans](ctx, k.client(), "/keys/plans")
	if err != nil || k.JSON {
		return printJSON(w, all, err)
	}
	t := textTable{
		columns: []string{"KEY", "PLAN", "ROUTE", "ENDS IN", "SINCE", "BY", "REASON", "ID"},
		empty:   "no plan is assigned to a key; weir keys plan user=alice pro --for 30d assigns one",
	}
	for _, p := range all.Keys {
		t.add(textRow{}, printable(p.Key.Masked), p.Plan, cmp.Or(p.Route, "all"), endsIn(p.Directive, time.Now()),
			p.At.UTC().Format(time.RFC3339), printable(p.Who), printable(cmp.Or(p.Reason, "-")), p.ID)
	}
	return t.printAll(w.Stdout)
}

// A keysText writes the state of a key as text.
type keysText struct {
	*bufio.Writer           // which keeps the first error
	at            time.Time // by the store's clock
	palette
}

// ask changes a key, or looks it up if c has no action. It writes the answer, and returns it.
func (k *keysText) ask(ctx context.Context, client admin.Client, c view.KeyChange) (any, error) {
	if c.Action == "" {
		s, err := admin.Post[view.KeyStanding](ctx, client, "/keys/inspect", c.KeyQuery)
		if k.at = s.At; err == nil {
			k.standing(s)
		}
		return s, err
	}
	r, err := client.Change(ctx, c)
	if k.at = r.At; err == nil {
		k.result(r)
	}
	return r, err
}

// standing writes the state of a key, which begins with whether it is refused.
func (k *keysText) standing(s view.KeyStanding) {
	if len(s.Limits)+len(s.Networks) == 0 {
		fmt.Fprintf(k, "no network is banned there\n")
		return
	}
	fmt.Fprintf(k, "%s\n", s.Verdict().Text)
	k.limits(s.Limits)
	k.notes(s.Notes)
}

// result writes the result of a change, the state after it, and last whether the key is refused now.
func (k *keysText) result(r view.KeyResult) {
	fmt.Fprintf(k, "%s\n", k.done(r))
	k.limits(r.Changed)
	for _, s := range r.Skipped {
		fmt.Fprintf(k, "not changed: %s: %s\n", view.LimitName(s.Route, s.Limit), s.Why)
	}
	k.notes(r.Notes)
	if r.Now.Text != "" { // a weir of an older version does not say it
		fmt.Fprintf(k, "%s\n", r.Now.Text)
	}
}

// done says what was done, under which limits and where. Of limits under which there was nothing to do, it says so.
func (k *keysText) done(r view.KeyResult) string {
	if r.Network != nil {
		return k.doneToNetwork(r)
	}
	verb := map[view.KeyAction]string{
		view.KeyReset: "reset", view.KeyGrant: grantedText(r),
		view.KeyBan: "banned for " + r.For.String() + " by", view.KeyUnban: "ended bans by",
		view.KeyAssign: "assigned the plan " + r.Plan + " for " + r.For.String() + " under", view.KeyUnassign: "ended the assignment of a plan under",
	}[r.Action]
	nothing := map[view.KeyAction]string{view.KeyReset: "nothing to reset under ", view.KeyUnban: "there was no ban to end by "}[r.Action]
	done, not := namesOf(r.Affected()), namesOf(r.Unaffected())
	if not != "" && nothing == "" { // a grant says it
		done, not = namesOf(r.Changed), ""
	}
	if done == "" {
		return nothing + not
	}
	text := fmt.Sprintf("%s %s, %s", verb, done, k.where(r))
	if not != "" {
		text += "; " + nothing + not
	}
	return text
}

// where says where a change holds.
func (k *keysText) where(r view.KeyResult) string {
	if r.Everywhere {
		return r.Where()
	}
	return k.bad(r.Where())
}

// namesOf returns the names of limits.
func namesOf(limits []view.LimitStanding) string {
	return strings.Join(view.Each(limits, view.LimitStanding.FullName), ", ")
}

// grantedText says how many permits were granted, and if these are less than were asked for, why.
func grantedText(r view.KeyResult) string {
	switch n := r.Granted(); {
	case r.Later || n == r.Permits:
		return "granted " + plural(int(r.Permits), "permit") + " of"
	case n == 0:
		return "granted nothing, because no permit was used, of"
	default:
		return fmt.Sprintf("granted %d of %s, because no more were used, of", n, plural(int(r.Permits), "permit"))
	}
}

func (k *keysText) notes(notes []string) {
	for _, n := range notes {
		fmt.Fprintf(k, "note: %s\n", n)
	}
}

// limits writes a table for each key, with one line for each rate.
func (k *keysText) limits(all []view.LimitStanding) {
	last := ""
	first := func(l view.LimitStanding) int {
		return slices.IndexFunc(all, func(o view.LimitStanding) bool { return o.ID == l.ID })
	}
	t := tabwriter.NewWriter(k, 0, 0, 2, ' ', 0)
	for _, l := range slices.SortedStableFunc(slices.Values(all), func(a, b view.LimitStanding) int { return first(a) - first(b) }) {
		if l.ID != last {
			t.Flush() // each key has its own columns
			last = l.ID
			fmt.Fprintf(k, "\n%s  %s  %s\n", k.head(l.Masked), "hash "+l.Hash, l.ID)
			fmt.Fprintln(t, "  LIMIT\tRATE\tUSED\tLEFT\tNEXT IN\tFULL IN\tBANNED FOR\t")
		}
		name := l.FullName()
		if l.Unknown != "" {
			fmt.Fprintf(t, "  %s\t-\t-\t-\t-\t-\t-\t%s\n", name, l.Unknown)
		}
		for _, w := range l.Windows {
			n := w.Texts()
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, w.Rate, n.Used, n.Left,
				k.until(w.Next), k.until(w.Full), k.until(l.BannedUntil), l.Remarks(w))
		}
	}
	t.Flush()
}

// until returns the time left until t; "-" for the zero time.
func (k *keysText) until(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return view.Duration(max(t.Sub(k.at), time.Second))
}

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
	Route  string `arg:"" optional:"" names:"routes" help:"The route; all routes if it is left out."`
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
	one := c.State == "show" && c.Route != ""
	if c.State == "show" {
		now, err = admin.Get[admin.Maintenance](ctx, c.client(), "/maintenance")
		now.On = slices.DeleteFunc(now.On, func(d directive.Directive) bool { return one && d.Route != "" && d.Route != c.Route })
		if one && err == nil {
			_, err = c.client().TopOf(ctx, view.TopQuery{Route: c.Route, N: 1}) // which fails if there is no such route
		}
	} else {
		now, err = admin.Post[admin.Maintenance](ctx, c.client(), "/maintenance", m)
	}
	if err != nil || c.JSON {
		return printJSON(w, now, err)
	}
	fmt.Fprint(w.Stdout, map[string]string{"off": "maintenance of " + cmp.Or(c.Route, "all routes") + " has ended\n"}[c.State])
	if !now.Everywhere {
		fmt.Fprintln(w.Stdout, map[bool]string{true: "redis is unreachable: "}[len(now.Behind) == 0]+"this holds "+now.Where())
	}
	return directiveTable(now.On, map[bool]string{false: "no route is under maintenance", true: "route " + c.Route + " is not under maintenance"}[one]).printAll(w.Stdout)
}

// directiveTable returns directives as a table, and what is to be said if there are none.
func directiveTable(all []directive.Directive, empty string) textTable {
	t := textTable{columns: []string{"WHAT", "ROUTE", "ENDS IN", "SINCE", "BY", "REASON"}, empty: empty}
	for _, d := range all {
		what := map[bool]string{false: "maintenance", true: d.Network.String()}[d.Network.IsValid()]
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
	return view.Duration(max(d.Until.Sub(now), time.Second))
}

// doneToNetwork says that a network was banned or unbanned.
func (k *keysText) doneToNetwork(r view.KeyResult) string {
	done := "unbanned"
	if r.Action == view.KeyBan {
		done = "banned for " + r.For.String()
	}
	return fmt.Sprintf("network %s %s on %s, %s", r.Network, done, cmp.Or(r.Route, "all routes"), k.where(r))
}
