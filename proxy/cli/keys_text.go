package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// A keysText writes the state of a key as text.
type keysText struct {
	w  io.Writer
	at time.Time // by the store's clock
	palette
	err error // the first write error
}

func (k *keysText) printf(format string, values ...any) {
	if _, err := fmt.Fprintf(k.w, format, values...); k.err == nil {
		k.err = err
	}
}

// ask changes a key, or looks it up if c has no action. It writes the answer, and returns it.
func (k *keysText) ask(ctx context.Context, client admin.Client, c proxy.KeyChange) (any, error) {
	if c.Action == "" {
		s, err := client.Standing(ctx, c.KeyQuery)
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
func (k *keysText) standing(s proxy.KeyStanding) {
	if len(s.Limits)+len(s.Networks) == 0 {
		k.printf("no network is banned there\n")
		return
	}
	k.printf("%s\n", s.Verdict().Text)
	k.limits(s.Limits)
	k.notes(s.Notes)
}

// result writes the result of a change, the state after it, and last whether the key is refused now.
func (k *keysText) result(r proxy.KeyResult) {
	if r.Network == nil {
		k.printf("%s\n", k.done(r))
		k.limits(r.Changed)
		for _, s := range r.Skipped {
			k.printf("not changed: %s: %s\n", proxy.LimitName(s.Route, s.Limit), s.Why)
		}
	} else {
		k.networkResult(r)
	}
	k.notes(r.Notes)
	if r.Now.Text != "" { // a weir of an older version does not say it
		k.printf("%s\n", r.Now.Text)
	}
}

// done says what was done, under which limits and where. Of limits under which there was nothing to do, it says so.
func (k *keysText) done(r proxy.KeyResult) string {
	verb := map[proxy.KeyAction]string{
		proxy.KeyReset: "reset", proxy.KeyGrant: grantedText(r),
		proxy.KeyBan: "banned for " + r.For.String() + " by", proxy.KeyUnban: "ended bans by",
		proxy.KeyAssign: "assigned the plan " + r.Plan + " for " + r.For.String() + " under", proxy.KeyUnassign: "ended the assignment of a plan under",
	}[r.Action]
	nothing := map[proxy.KeyAction]string{proxy.KeyReset: "nothing to reset under ", proxy.KeyUnban: "there was no ban to end by "}[r.Action]
	done, not := namesOf(r.Affected()), namesOf(r.Unaffected())
	if not != "" && nothing == "" { // a grant says it
		done, not = namesOf(r.Changed), ""
	}
	if done == "" {
		return nothing + not
	}
	where := r.Where()
	if !r.Everywhere {
		where = k.bad(where)
	}
	text := fmt.Sprintf("%s %s, %s", verb, done, where)
	if not != "" {
		text += "; " + nothing + not
	}
	return text
}

// namesOf returns the names of limits.
func namesOf(limits []proxy.LimitStanding) string {
	var names []string
	for _, l := range limits {
		names = append(names, proxy.LimitName(l.Route, l.Limit))
	}
	return strings.Join(names, ", ")
}

// grantedText says how many permits were granted, and if these are less than were asked for, why.
func grantedText(r proxy.KeyResult) string {
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
		k.printf("note: %s\n", n)
	}
}

// limits writes a table for each key, with one line for each rate.
func (k *keysText) limits(all []proxy.LimitStanding) {
	last := ""
	t := tabwriter.NewWriter(k.w, 0, 0, 2, ' ', 0)
	for _, l := range all {
		if l.ID != last {
			t.Flush() // each key has its own columns
			last = l.ID
			k.printf("\n%s  %s  %s\n", k.head(l.Masked), "hash "+l.Hash, l.ID)
			fmt.Fprintln(t, "  LIMIT\tRATE\tUSED\tLEFT\tNEXT IN\tFULL IN\tBANNED FOR\t")
		}
		name := proxy.LimitName(l.Route, l.Limit)
		if l.Unknown != "" {
			fmt.Fprintf(t, "  %s\t-\t-\t-\t-\t-\t-\t%s\n", name, l.Unknown)
		}
		for _, w := range l.Windows {
			n := w.Texts()
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, w.Rate, n.Used, n.Left,
				k.until(w.Next), k.until(w.Full), k.until(l.BannedUntil), remarks(l, w))
		}
	}
	if err := t.Flush(); k.err == nil {
		k.err = err
	}
}

// until returns the time left until t; "-" for the zero time.
func (k *keysText) until(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return max(t.Sub(k.at).Round(time.Second), time.Second).String()
}

// remarks returns the last column of a line.
func remarks(l proxy.LimitStanding, w proxy.WindowStanding) string {
	all := holding(
		fact{l.Mode == "shadow", "shadow: refuses nobody"},
		fact{l.Plan != "" && l.PlanUntil.IsZero(), "plan " + l.Plan},
		fact{!l.PlanUntil.IsZero(), "plan " + l.Plan + ", assigned until " + l.PlanUntil.UTC().Format(time.RFC3339)},
		fact{l.Derived, "counts for others too"},
		fact{l.Java, "shared with Java"},
		fact{l.Store == "local", "this node's share"},
		fact{l.Scope == "per_instance", "this node's count"},
		fact{w.Overflow, "memory is full: shares a count with other keys"},
		fact{w.Unreadable, "the store holds something else here; reset heals it"},
	)
	if c := w.Conversion; c != nil {
		all = append(all, c.String())
	}
	if w.Granted > 0 {
		all = append(all, "granted "+w.Texts().Granted)
	}
	if p := l.Penalty; p != nil {
		all = append(all, fmt.Sprintf("refused %d of %d before a ban of %s", p.Refused, p.After, p.Ban))
	}
	return strings.Join(all, "; ")
}
